#!/bin/sh
# A whole new server from nothing, each step timed: clone, environment, measurement, reports, answers.
#
#     tools/new_server.sh REPOSITORY FOLDER [NAME [MINUTES [OPTION OF MEASURE]...]]
#
# As root, so that holds are measured; tracefs is mounted as systems do it. NAME is what the machine
# will be called (default: new-server), MINUTES what `measure` may take (3). The table at the end has
# seconds of wall time and of CPU. A step that fails is said, and the others follow.
set -u
from=$1 to=$2 name=${3:-new-server} minutes=${4:-3}
shift $(($# < 4 ? $# : 4))
times=$(mktemp)
trap 'rm -f "$times" "$times.cpu"' EXIT
step() { # what, command
	what=$1
	shift
	echo "== $what: $*" >&2
	# In a shell of its own, whose children's time is this step's alone.
	sh -c '
		out=$1 what=$2
		shift 2
		begin=$(date +%s.%N)
		"$@" >&2
		code=$?
		end=$(date +%s.%N)
		times > "$out.cpu" # in a pipe it would be of a shell without children
		set -- $(tail -n 1 "$out.cpu")
		echo "$what|$begin|$end|$1 $2|$code" >> "$out"' sh "$times" "$what" "$@"
}
step "git clone" git clone --quiet "$from" "$to"
cd "$to" || exit 1
step "make env" make --silent env
bin=.venv/bin/pcpmodel
step "measure" "$bin" measure "$name" --minutes "$minutes" "$@"
step "rerun" "$bin" rerun "03-new-hardware/$name"
step "limit" "$bin" limit "$name" --p99-us 100
step "advise" "$bin" advise --machine "$name"
awk -F'|' '
	function seconds(text,  part) { split(text, part, /[ms ]+/); return 60 * part[1] + part[2] + 60 * part[3] + part[4] }
	{ wall = $3 - $2; all += wall
	  printf "%-10s %7.1f s %7.1f s of CPU%s\n", $1, wall, seconds($4), $5 ? "   exit code " $5 : "" }
	END { printf "%-10s %7.1f s = %.1f minutes\n", "all", all, all / 60 }' "$times"
