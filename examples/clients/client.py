"""A client of `episafe serve` in plain Python: ask who acts, act, report. Asking again after an error is safe."""

import json
import time
import urllib.error
import urllib.request


class Client:
    def __init__(self, address="http://127.0.0.1:8765", token="", tries=5):
        self.address, self.token, self.tries = address, token, tries

    def ask(self, name, **body):
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {self.token}"} if self.token else {}
        )
        request = urllib.request.Request(f"{self.address}/{name}", json.dumps(body).encode(), headers, method="POST")
        for attempt in range(self.tries):
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or attempt + 1 == self.tries:
                    raise RuntimeError(json.load(error)["error"]) from error
            except OSError:
                if attempt + 1 == self.tries:
                    raise
            time.sleep(2**attempt / 10)  # the episode_id makes the same question safe to ask again
