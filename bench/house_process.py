# SPDX-License-Identifier: Apache-2.0
"""A daemon without Ray in a process of its own, to be killed: each line on its standard input is a message or a question.

Run by path: `python house_process.py SETTINGS_FILE`.
"""

import json
import sys
from pathlib import Path

from sentinel.daemon.house import House


def main():
    path = Path(sys.argv[1])
    house = House(path.read_text(encoding="utf-8"), str(path), serve=False)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, given = json.loads(line)
        if what == "report":
            answer = house.watchdog.report(given)
        elif what == "settle":
            answer = house.watchdog.deeds.wait(30.0)
        else:
            answer = house.answers.answer(what, given)
        print(json.dumps(answer), flush=True)
    house.close()


if __name__ == "__main__":
    main()
