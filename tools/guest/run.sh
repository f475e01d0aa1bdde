#!/usr/bin/busybox sh
# Second process of the guest of tools/emulated_guest.py: the load, under every source at once.
# Each source sees the load's threads alone, from before its first hold to after its last.
busybox=/usr/bin/busybox
$busybox --install -s /guest/bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/guest/bin HOME=/tmp TERM=dumb LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmp /tmp
mount -t tracefs tracing /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
ip link set lo up 2> /dev/null
echo 0 > /proc/sys/kernel/kptr_restrict
echo -1 > /proc/sys/kernel/perf_event_paranoid
exec > /out/log 2>&1
. /guest/settings
tracing=/sys/kernel/tracing
say() { echo "guest: $(cut -d' ' -f1 /proc/uptime) $*" > /dev/console; }
touch /out/lacks
lacks() { echo "$*" >> /out/lacks; }
uname -r > /out/release
grep -wE "free_pcppages_bulk|rmqueue_bulk|__rmqueue_pcplist" /proc/kallsyms > /out/symbols

mkfifo /tmp/go
/guest/load /tmp/go "$PAGES" > /tmp/load &
load=$!
until grep -q ready /tmp/load; do sleep 0.2; done
tids=$(ls /proc/$load/task | tr '\n' ' ')

instance() { # name, events
	here=$tracing/instances/$1
	mkdir "$here"
	shift
	echo mono > "$here/trace_clock"
	echo "$tids" > "$here/set_event_pid"
	for event; do
		if [ -e "$here/events/$event" ]; then
			echo 1 > "$here/events/$event/enable"
		else
			lacks "event $event"
		fi
	done
}

# Probes of entry and return, with the pages that are asked for.
probes=
probe() { # side, function, arguments
	if echo "p:pcp/$1 $2 $3" >> $tracing/kprobe_events; then
		echo "r:pcp/$1_return $2" >> $tracing/kprobe_events
		probes="$probes pcp/$1 pcp/$1_return"
	else
		lacks "function $2: inlined, or no kprobes"
		return 1
	fi
}
probe free free_pcppages_bulk 'pages=%si:s32'
probe alloc rmqueue_bulk 'order=%si:u32 pages=%dx:s32' ||
	probe list __rmqueue_pcplist 'order=%si:u32'
instance kprobes $probes
echo 4096 > $tracing/instances/kprobes/buffer_size_kb

instance kmem $KMEM
echo 16384 > $tracing/instances/kmem/buffer_size_kb
for event in $KMEM; do
	mkdir -p "/out/events/$event"
	cat "$tracing/events/$event/format" > "/out/events/$event/format"
done

instance waits lock/contention_begin lock/contention_end lock/contended_release
echo 1 > $tracing/instances/waits/options/stacktrace
echo 4096 > $tracing/instances/waits/buffer_size_kb

# With the events of the pages within: which holds there were, by this source alone. In an instance
# as `pcpmodel measure` has it, where the kernel's instances may have this tracer.
graph=$tracing/instances/graph
mkdir $graph
if ! grep -qw function_graph $graph/available_tracers; then
	lacks "function_graph in an instance"
	rmdir $graph
	graph=$tracing
fi
echo mono > $graph/trace_clock
echo 8192 > $graph/buffer_size_kb
if grep -qw function_graph $graph/available_tracers; then
	for function in free_pcppages_bulk rmqueue_bulk __rmqueue_pcplist; do
		echo $function >> $graph/set_ftrace_filter
	done
	echo "$tids" > $graph/set_ftrace_pid
	echo "$tids" > $graph/set_event_pid
	for event in $PAGE_EVENTS; do echo 1 > $graph/events/$event/enable; done
	echo function_graph > $graph/current_tracer
else
	lacks "tracer function_graph"
fi

others=
sed "s/(PID)/$load/g" /guest/pages.sh > /tmp/pages.sh
sh /tmp/pages.sh > /out/bpftrace.txt 2> /out/bpftrace.err &
bpf=$!
for i in $(seq 900); do
	cat /out/bpftrace.txt /out/bpftrace.err | grep -qi attach && break
	[ -d /proc/$bpf ] || { lacks "bpftrace: $(tail -n 3 /out/bpftrace.err | tr '\n' ' ')"; break; }
	sleep 1
done
say "bpftrace: $(cat /out/bpftrace.txt /out/bpftrace.err | head -n 1)"
for function in free_pcppages_bulk rmqueue_bulk __rmqueue_pcplist; do
	grep -qw $function /out/symbols || continue
	funclatency-libbpf -p $load $function > /out/funclatency-$function.txt 2>&1 &
	others="$others $!"
	sleep 15 # it says nothing into a file until it ends
	[ -d /proc/$! ] || lacks "funclatency: $(cat /out/funclatency-$function.txt)"
done
events="-e lock:contention_begin -e lock:contention_end"
[ -e $tracing/events/lock/contended_release ] && events="$events -e lock:contended_release"
perf record -R -c 1 -m 2048 -g $events -p $load -o /tmp/perf.data > /out/perf.err 2>&1 &
others="$others $!"
while [ ! -s /tmp/perf.data ]; do
	[ -d /proc/$! ] || { lacks "perf record: $(tail -n 3 /out/perf.err)"; break; }
	sleep 1
done
sleep 5

say "load begins; lacks: $(tr '\n' ';' < /out/lacks)"
echo go > /tmp/go
until grep -q done /tmp/load; do sleep 0.5; done
say "load is done"
for here in $tracing $tracing/instances/*; do echo 0 > "$here/tracing_on"; done
kill -INT $bpf $others
wait $bpf $others

cat $graph/trace > /out/function_graph.txt
for cpu in $tracing/per_cpu/cpu*; do
	cat "$graph/per_cpu/${cpu##*/}/trace" > "/out/function_graph.${cpu##*/}.txt"
	raw=instances/kmem/per_cpu/${cpu##*/}
	cat "$tracing/$raw/stats" > "/out/kmem.${cpu##*/}.stats"
	timeout 20 dd if="$tracing/$raw/trace_pipe_raw" of="/out/kmem.${cpu##*/}.raw" bs=4096
done
cat $tracing/instances/kprobes/trace > /out/kprobes.txt
cat $tracing/kprobe_profile > /out/kprobe_profile
cat $tracing/instances/waits/trace > /out/waits.txt
perf script --ns -F comm,tid,cpu,time,event,trace,ip,sym -i /tmp/perf.data > /out/perf-script.txt
perf lock contention -i /tmp/perf.data > /out/perf-lock.txt 2>&1
perf lock contention -x, -i /tmp/perf.data > /out/perf-lock.csv 2>&1
say "all is written"
tar -C / -cf /dev/vdb out
sync
echo go > /tmp/go
poweroff -f
