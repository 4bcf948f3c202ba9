"""Drives a headless Chromium through its DevTools protocol over two pipes. Standard library only.

Source: https://chromedevtools.github.io/devtools-protocol/ (--remote-debugging-pipe: requests on
descriptor 3, answers on 4, each a JSON text that ends with a zero byte).
"""

import base64
import json
import os
import pathlib
import queue
import shutil
import subprocess
import tempfile
import threading
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 30
KEYS = {  # name -> (code, number, text)
    "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, ""),
    "Backspace": ("Backspace", 8, ""), " ": ("Space", 32, " "), "/": ("Slash", 191, "/"),
}
MODIFIERS = {"Alt": 1, "Ctrl": 2, "Shift": 8}


def find_chromium():
    """The program of $CHROMIUM, or the first of NAMES that is installed."""
    chosen = os.environ.get("CHROMIUM")
    found = shutil.which(chosen) if chosen else next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        raise RuntimeError(
            f"the tests of the page need Chromium: {chosen or ', '.join(NAMES)} not found; install it "
            "(Debian: apt-get install chromium) or set CHROMIUM to a program")
    return found


class Browser:
    def __init__(self):
        program = find_chromium()
        self._profile = tempfile.TemporaryDirectory(prefix="kuruma_page_")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # Through 10 and 11, since either pipe may itself be 3 or 4.
        command = f'exec 10<&{to_read} 11>&{to_write} 3<&10 4>&11 10<&- 11>&-; exec "$@"'
        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update",
                     f"--user-data-dir={self._profile.name}"]
        self._log = open(pathlib.Path(self._profile.name) / "log", "wb")
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", *arguments], pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        os.close(to_read)
        os.close(to_write)
        self._answers = {}
        self._arrived = threading.Condition()
        self._ended = False
        self._listeners = {}
        self._last_id = 0
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        rest = b""
        while True:
            piece = os.read(self._read, 1 << 16)
            if not piece:
                break
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                with self._arrived:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif message.get("sessionId") in self._listeners:
                        self._listeners[message["sessionId"]].put(message)
                    self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def call(self, method, session=None, **params):
        with self._arrived:
            self._last_id += 1
            number = self._last_id
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: number in self._answers or self._ended, TIMEOUT_S)
            if not arrived or number not in self._answers:
                self._log.flush()
                log = (pathlib.Path(self._profile.name) / "log").read_text(errors="replace")
                raise RuntimeError(f"chromium gave no answer to {method}; its log ends:\n{log[-2000:]}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, width=1280, height=800, **media):
        """A page with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Page(self, context, session["sessionId"], (width, height), media)

    def listen(self, session):
        events = queue.Queue()
        with self._arrived:
            self._listeners[session] = events
        return events

    def close(self):
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        self._log.close()
        for _ in range(50):  # its children may still write into the profile
            try:
                self._profile.cleanup()
                return
            except OSError:
                time.sleep(0.1)


class Page:
    """One tab. Waiting is for a state, never for a time."""

    def __init__(self, browser, context, session, size, media):
        self._browser, self._context, self._session = browser, context, session
        self._events = browser.listen(session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*size)
        self.media(**media)

    def call(self, method, **params):
        return self._browser.call(method, self._session, **params)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def media(self, **features):
        """For example prefers_color_scheme="dark"."""
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def reload(self):
        self.js("window.isOld = true")
        self.call("Page.reload")
        self.wait("document.readyState === 'complete' && !window.isOld")

    def js(self, expression):
        """The value of an expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, expression):
        """Until the expression is true; returns its value."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            try:
                value = self.js(expression)
                if value:
                    return value
            except RuntimeError as error:  # the page is not there yet
                value = error
            time.sleep(0.02)
        raise AssertionError(f"never true: {expression} ({value})\n"
                             f"The page says:\n{self.js('document.body.innerText')}")

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)}).innerText")

    def wait_text(self, selector, text):
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText"
                  f".includes({json.dumps(text)})")

    def exists(self, selector):
        """Whether there is such an element and a person can see it."""
        return self.js(f"Boolean(document.querySelector({json.dumps(selector)})?.checkVisibility())")

    def click(self, selector, text=None):
        """A real click into the middle of the first visible match, whose text is `text` if given."""
        box = self.wait(f"""(() => {{
          const node = [...document.querySelectorAll({json.dumps(selector)})].find((one) =>
            one.checkVisibility() && ({json.dumps(text)} === null || one.textContent === {json.dumps(text)}));
          if (!node) return null;
          node.scrollIntoView({{block: 'nearest'}});
          const box = node.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1],
                      button="none" if kind == "mouseMoved" else "left", clickCount=1)

    def press(self, keys):
        """For example "Enter", "Shift+Enter" or "Ctrl+k"."""
        *modifiers, key = keys.split("+")
        bits = sum(MODIFIERS[name] for name in modifiers)
        code, number, text = KEYS.get(key, (f"Key{key.upper()}", ord(key.upper()[0]), key))
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": bits}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common,
                  **({"text": text} if text and not bits & 2 else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def focused(self):
        return self.js("document.activeElement.id || document.activeElement.ariaLabel || "
                       "document.activeElement.textContent")

    def problems(self, expected=()):
        """Errors of scripts, console errors and warnings, blocked loads; not those that hold one of
        the `expected` words."""
        self.js("0")
        found = []
        while not self._events.empty():
            event = self._events.get()
            kind, params = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
            elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(json.dumps(params["entry"]))
        return [one for one in found if not any(word in one for word in expected)]

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)
