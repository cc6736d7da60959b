# SPDX-License-Identifier: Apache-2.0
"""A driver of a Ray cluster in its own process: it does what each line on its standard input says and answers in JSON.

Run by path, not imported: `python ray_driver.py`, with RAY_ADDRESS and RAY_RUNTIME (a runtime_env as JSON) in its environment.
"""

import json
import os
import sys
import time

import ray

from sentinel.daemon import ray_actor


@ray.remote(num_cpus=0)
class Starter:
    """Starts the daemon from inside a run, as its trainer does."""

    def start(self, text):
        ray.get(ray_actor.connect_or_start(text).query.remote("status"))
        return "started"


def timed_steps(actor, message, count):
    seconds = []
    for number in range(count):
        message["records"][0] |= {"step": number + 1, "at": time.time()}
        begin = time.perf_counter()
        ray.get(actor.report.remote(message))
        seconds.append(time.perf_counter() - begin)
        time.sleep(0.01)
    return seconds


def main():
    runtime = json.loads(os.environ.get("RAY_RUNTIME", "{}"))
    ray.init(address=os.environ["RAY_ADDRESS"], logging_level="ERROR", log_to_driver=False, runtime_env=runtime)
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        what, *args = json.loads(line)
        try:
            if what == "start":
                answer = ray.get(Starter.options(runtime_env=args[1]).remote().start.remote(args[0]))
            elif what == "connect":
                actor = ray_actor.connect_or_start(args[0])
                answer = ray.get(actor.query.remote("status"), timeout=60)["pid"]
            elif what == "report":
                answer = ray.get(ray_actor.find().report.remote(args[0]), timeout=30)
            elif what == "query":
                answer = ray.get(ray_actor.find().query.remote(*args), timeout=30)
            elif what == "timed":
                answer = timed_steps(ray_actor.find(), *args)
            elif what == "environment":
                call = ray_actor.find().__ray_call__.remote(
                    lambda self: (dict(os.environ), os.getcwd(), sorted(sys.modules))
                )
                answer = ray.get(call, timeout=30)
            else:
                answer = f"what is {what}?"
            print(json.dumps({"answer": answer}), flush=True)
        except Exception as error:  # noqa: BLE001  # told to the test
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
