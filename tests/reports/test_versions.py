"""The version report of notebooks and bug reports."""

import pcpmodel as pm
from pcpmodel.reports import versions


def test_show_versions_names_the_package_and_what_it_rests_on(capsys):
    pm.show_versions()
    printed = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert printed["pcpmodel"] == pm.__version__
    assert printed["numpy"] == versions.versions()["numpy"] != "not installed"
