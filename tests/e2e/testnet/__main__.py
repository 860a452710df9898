"""Runs scenarios one after the other: `scripts/testnet` starts this."""

import argparse
import resource
import shutil
import signal
import sys
from pathlib import Path

from firsthop import namespaces

from . import results
from .scenarios import ALL, BY_NAME
from .trial import Row, run

QUICK_CALLS = 12
#: What the targets speak of: with fewer calls, results are not for the file.
CALLS = 100


def main() -> int:
    """Returns the exit status: 1 when a scenario has failed."""
    parser = argparse.ArgumentParser(prog="scripts/testnet", description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="folder with the programs")
    parser.add_argument("--logs", type=Path, required=True, help="folder for the logs of what fails")
    parser.add_argument("--results", type=Path, help="the results file; without, none is written")
    parser.add_argument(
        "--calls", type=int, default=CALLS, help="how many calls are up at once (%(default)s); fewer write no results"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CALLS} calls; writes no results")
    parser.add_argument("--commit", default="unknown", help="what was built")
    parser.add_argument("--date", default="unknown", help="when")
    parser.add_argument("--profile", default="release", help="how it was built")
    parser.add_argument("--check", action="store_true", help="say what is wrong with the arguments, and do nothing")
    parser.add_argument("--list", action="store_true", help="say which scenarios there are")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them, unless named")
    options = parser.parse_args()
    if options.list:
        for scenario in ALL:
            print(f"{scenario.name:26} {scenario.what}; target: {scenario.target}")
        return 0
    unknown = [name for name in options.scenarios if name not in BY_NAME]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]}; --list names them")
    if options.calls < 1:
        parser.error("--calls needs a number above 0")
    if options.check:
        return 0
    calls = QUICK_CALLS if options.quick else options.calls
    rows = run_all(options.scenarios or list(BY_NAME), options.binaries, options.logs, calls)
    print("\n" + results.table(rows), flush=True)
    if options.results and calls >= CALLS:
        occasion = results.Occasion(options.commit, options.date, options.profile)
        results.write(options.results, rows, occasion)
        print(f"\nWritten to {options.results}")
    return 0 if all(row.passed for row in rows) else 1


def run_all(names: list[str], binaries: Path, logs: Path, calls: int) -> list[Row]:
    """Runs these scenarios. The logs of those that fail stay."""
    namespaces.remove_stale()
    # Every caller has a socket of its own.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = []
    for number, name in enumerate(names, 1):
        print(f"{number:2}/{len(names)} {name} ...", end=" ", flush=True)
        directory = logs / name
        shutil.rmtree(directory, ignore_errors=True)
        row = run(BY_NAME[name], binaries, directory, calls)
        rows.append(row)
        if row.passed:
            shutil.rmtree(directory)
            print("pass", flush=True)
        else:
            print(f"FAIL; logs: {directory}", flush=True)
            for fault in row.faults:
                print(f"      {fault}", flush=True)
    return rows


if __name__ == "__main__":
    # Who was started in the background ignores what Ctrl-C sends, and so would every program started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
