"""The chat as a person uses it."""

import json

from mock import Break, Gate, Refusal, ending, event, says

LAST = ".message.answer:last-child"


def ask(page, text):
    page.click("#prompt")
    page.type(text)
    page.press("Enter")


def finished(page, count=1):
    """Waits for the answer's line of numbers, which comes last."""
    page.wait(f"document.querySelectorAll('.message.answer').length === {count} && "
              f"document.querySelector('{LAST} .usage')?.innerText.includes('token')")


def messages(server, at=-1):
    return [(m["role"], m["content"]) for m in server.requests[at]["messages"]]


# ------------------------------------------------------------------------------------- answers


def test_an_answer_is_shown_while_it_comes(page, server):
    gate = Gate()
    server.scripts.append([event({"content": "First "}), gate, event({"content": "second."}), ending()])
    ask(page, "Hello?")
    page.wait_text(LAST, "First")
    assert "second" not in page.text(LAST)
    assert page.js("document.querySelector('.message.answer').ariaBusy") == "true"
    gate.open()
    page.wait_text(LAST, "First second.")
    finished(page)
    assert page.js("document.querySelector('.message.answer').ariaBusy") == "false"
    request = server.requests[0]
    assert request["stream"] is True and request["stream_options"] == {"include_usage": True}
    assert messages(server) == [("user", "Hello?")]
    usage = page.text(f"{LAST} .usage")
    for part in ("3 tokens", "tok/s", "first after", "prompt 1\u202f200", "1\u202f024 cached",
                 "1 for thinking"):
        assert part in usage, usage


def test_any_cut_of_the_stream_gives_the_same_text(page, server):
    text = "Grüße, 車! \U0001F697 done"
    data = "".join(says(text)).encode()
    server.scripts.append([data[i:i + 1] for i in range(len(data))])
    ask(page, "bytes")
    finished(page)
    assert page.text(f"{LAST} .content") == text
    crlf = data.replace(b"\n", b"\r\n")
    server.scripts.append([b": comment\r\n\r\n"] + [crlf[i:i + 1] for i in range(len(crlf))])
    ask(page, "carriage returns")
    finished(page, 2)
    assert page.text(f"{LAST} .content") == text


def test_events_follow_the_standard_for_every_cut(page):
    found = page.js("""(async () => {
      const { EventReader } = await import('./stream.js');
      const text = 'data: a\\r\\ndata:b\\n\\nid: 1\\nevent: x\\ndata\\n\\n: c\\n\\ndata:  d\\r\\rdata: lost';
      const all = new Set();
      for (let cut = 0; cut <= text.length; ++cut) {
        const got = [];
        const reader = new EventReader((data) => got.push(data));
        reader.push(text.slice(0, cut));
        reader.push(text.slice(cut));
        all.add(JSON.stringify(got));
      }
      return [...all];
    })()""")
    assert found == [json.dumps(["a\nb", "", " d"]).replace(", ", ",")]


def test_reasoning_is_folded_and_timed(page, server):
    gate = Gate()
    server.scripts.append([event({"reasoning_content": "Let me see."}), gate,
                           event({"content": "42"}), ending()])
    ask(page, "Why?")
    page.wait_text(f"{LAST} summary", "Thinking for")
    assert not page.js("document.querySelector('.reasoning').open")
    gate.open()
    finished(page)
    assert "Thought for" in page.text(f"{LAST} summary")
    page.click(f"{LAST} summary")
    page.wait("document.querySelector('.reasoning').open")
    assert page.text(f"{LAST} .reasoning-text") == "Let me see."
    server.scripts.append(says("Yes."))
    ask(page, "Sure?")
    finished(page, 2)
    assert page.js("document.querySelector('.reasoning').open"), "an open fold stays open"
    assert server.requests[1]["messages"][1] == {
        "role": "assistant", "content": "42", "reasoning_content": "Let me see."}


def call_script():
    return [event({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
                                   "function": {"name": "weather", "arguments": '{"city":'}}]}),
            event({"tool_calls": [{"index": 0, "function": {"arguments": '"Kyoto"}'}}]}),
            event({"tool_calls": [{"index": 1, "id": "c2", "type": "function",
                                   "function": {"name": "clock", "arguments": "{}"}}]}),
            ending("tool_calls")]


def test_tool_calls_are_answered_by_the_reader(page, server):
    server.scripts += [call_script(), says("Rain.")]
    ask(page, "Weather?")
    finished(page)
    assert page.text(".call .call-name") == "weather"
    assert page.text(".call pre") == '{\n  "city": "Kyoto"\n}'
    page.wait("document.activeElement.ariaLabel === 'Result of weather'")
    page.type("wet")
    page.press("Enter")
    page.wait("document.activeElement.ariaLabel === 'Result of clock'")
    page.type("noon")
    page.press("Enter")
    finished(page, 2)
    assert page.text(f"{LAST} .content") == "Rain."
    sent = server.requests[1]["messages"]
    assert [call["function"]["arguments"] for call in sent[1]["tool_calls"]] == ['{"city":"Kyoto"}', "{}"]
    assert sent[2:] == [{"role": "tool", "tool_call_id": "c1", "content": "wet"},
                        {"role": "tool", "tool_call_id": "c2", "content": "noon"}]
    assert not page.exists(".call textarea")
    page.reload()
    page.wait_text(".call-result", "wet")


def test_a_message_may_follow_tool_calls_that_wait(page, server):
    server.scripts += [call_script(), says("Well.")]
    ask(page, "Weather?")
    finished(page)
    page.type("wet")
    ask(page, "Never mind")
    finished(page, 2)
    assert [m["role"] for m in server.requests[1]["messages"]] == ["user", "assistant", "tool", "tool",
                                                                   "user"]
    assert server.requests[1]["messages"][2]["content"] == "wet"


def test_stop_keeps_what_came_and_leaves_the_server(page, server):
    gate = Gate()
    server.scripts.append([event({"content": "Half an "}), gate] + [event({"content": "x" * 9000})] * 500)
    ask(page, "Long one")
    page.wait_text(LAST, "Half an")
    assert page.js("document.querySelector('#send').ariaLabel") == "Stop"
    page.click("#send")
    page.wait_text(f"{LAST} .usage", "stopped")
    gate.open()
    assert server.gone.wait(20)
    assert page.text(f"{LAST} .content") == "Half an"
    assert page.js("document.querySelector('#send').ariaLabel") == "Send"


def test_calls_cut_in_half_by_a_stop_are_dropped(page, server):
    gate = Gate()
    server.scripts += [[event({"content": "a"}), *call_script()[:1], gate], says("ok")]
    ask(page, "Weather?")
    page.wait_text(".call", "weather")
    page.press("Escape")
    page.wait_text(f"{LAST} .usage", "stopped")
    assert not page.exists(".call")
    gate.open()
    ask(page, "Go on")
    finished(page, 2)
    assert messages(server) == [("user", "Weather?"), ("assistant", "a"), ("user", "Go on")]


def test_regenerate_asks_again_without_the_old_answer(page, server):
    server.scripts += [says("one"), says("two"), says("three")]
    ask(page, "First")
    finished(page)
    ask(page, "Second")
    finished(page, 2)
    page.click(".message.answer:nth-child(2) button", "Regenerate")
    page.wait_text(LAST, "three")
    finished(page)
    assert messages(server) == [("user", "First")]
    assert page.js("document.querySelectorAll('.message').length") == 2


def test_an_edited_message_cuts_what_followed(page, server):
    server.scripts += [says("one"), says("two"), says("three")]
    ask(page, "First")
    finished(page)
    ask(page, "Second")
    finished(page, 2)
    page.click(".message.user button", "Edit")
    page.press("Escape")
    assert page.text(".message.user .bubble") == "First"
    page.click(".message.user button", "Edit")
    page.js("document.activeElement.select()")
    page.type("Other")
    page.press("Enter")
    page.wait_text(LAST, "three")
    finished(page)
    assert messages(server) == [("user", "Other")]
    assert page.text(".message.user .bubble") == "Other"


# ------------------------------------------------------------------------------------- errors


def test_an_error_is_shown_and_retried(page, server):
    server.scripts += [Refusal(400, "'temperature' must be at most 2."), says("fine")]
    ask(page, "Hello")
    page.wait_text(".error", "'temperature' must be at most 2.")
    page.click(".error button", "Retry")
    finished(page)
    assert not page.exists(".error")
    assert messages(server) == [("user", "Hello")]


def test_a_full_server_is_asked_again_when_it_said_so(page, server):
    server.scripts += [Refusal(429, "The queue is full.", Retry_After="1"), says("now")]
    ask(page, "Hello")
    page.wait_text(".error", "Trying again in 1 s")
    finished(page)
    assert page.text(f"{LAST} .content") == "now"


def test_waiting_for_a_full_server_can_be_cancelled(page, server):
    server.scripts += [Refusal(429, "The queue is full.", Retry_After="900"), says("now")]
    ask(page, "Hello")
    page.wait_text(".error", "Trying again in")
    page.press("Escape")
    page.wait("![...document.querySelectorAll('.error .wait')].length")
    page.click(".error button", "Retry")
    finished(page)


def test_errors_inside_a_stream_keep_the_text(page, server):
    gate = Gate()
    server.scripts += [[event({"content": "Half"}), 'data: {"error": {"message": "Out of memory."}}\n\n'],
                       [event({"content": "Half"}), gate, Break()], [event({"content": "Half"})],
                       ["data: {nonsense\n\n"]]
    for words in ("Out of memory.", "The connection broke", "ended before the answer was complete",
                  "not JSON"):
        page.click("#new")
        ask(page, "Hello")
        if "broke" in words:
            page.wait_text(LAST, "Half")
            gate.open()
        page.wait_text(".error", words)
        assert "not JSON" in words or page.text(f"{LAST} .content") == "Half"


def test_a_server_that_is_away_is_named(page, server):
    server.scripts += [Break()] * 20  # browsers try again on connections that were in use
    ask(page, "Hello")
    page.wait_text(".error", "The server cannot be reached.")


def test_a_missing_key_is_asked_for_and_sent(page, server):
    server.key = "secret"
    page.reload()
    page.wait("document.querySelector('#key-dialog').open")
    assert "An API key is needed." in page.text("#key-reason")
    page.press("Escape")
    page.wait("!document.querySelector('#key-dialog').open")
    server.scripts.append(says("Welcome."))
    ask(page, "Hello")
    page.wait("document.querySelector('#key-dialog').open")
    page.type("wrong")
    page.press("Enter")
    page.wait("document.querySelector('#key-dialog').open && !document.querySelector('#key-input').value")
    page.type("secret")
    page.press("Enter")
    finished(page)
    assert messages(server) == [("user", "Hello")]
    assert page.js("[sessionStorage.getItem('kuruma.key'), JSON.stringify(localStorage).includes('secret')]") \
        == ["secret", False]
    page.reload()
    page.wait("document.querySelectorAll('#settings [name=model] option').length === 3")
    assert not page.js("document.querySelector('#key-dialog').open")


# ------------------------------------------------------------------------------------- settings


def fill(page, name, value):
    page.js(f"""(() => {{
      const field = document.querySelector('#settings').elements[{json.dumps(name)}];
      field.value = {json.dumps(value)};
      field.dispatchEvent(new Event('input', {{bubbles: true}}));
    }})()""")


def test_settings_reach_the_server(page, server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    values = {"model": "other", "system": "Be kind.", "thinking": "on", "effort": "high",
              "temperature": "0.7", "top_p": "0,9", "top_k": "20", "max_tokens": "64", "seed": "0",
              "tools": json.dumps([tool])}
    page.click("#toggle-settings")
    for name, value in values.items():
        fill(page, name, value)
    server.scripts.append(says("ok"))
    ask(page, "Hi")
    finished(page)
    request = server.requests[0]
    request.pop("stream"), request.pop("stream_options")
    assert request == {
        "model": "other", "thinking": {"type": "enabled"}, "reasoning_effort": "high",
        "temperature": 0.7, "top_p": 0.9, "top_k": 20, "max_tokens": 64, "seed": 0, "tools": [tool],
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]}


def test_nothing_is_sent_that_was_not_set(page, server):
    server.scripts.append(says("ok"))
    ask(page, "Hi")
    finished(page)
    assert set(server.requests[0]) == {"messages", "stream", "stream_options"}


def test_wrong_settings_are_named_and_not_sent(page, server):
    for name, value, words in (("temperature", "3", "Temperature must be a number from 0 to 2."),
                               ("top_k", "1.5", "Top-k must be a whole number"),
                               ("tools", "[{]", "Tools are not JSON"),
                               ("tools", "{}", "Tools must be a JSON array.")):
        fill(page, name, value)
        ask(page, "Hi")
        page.wait_text("#settings-error", words)
        page.wait(f"document.activeElement.name === '{name}'")
        assert page.js("document.querySelector('#prompt').value").startswith("Hi"), "the text is kept"
        fill(page, name, "")
    assert not server.requests


# ------------------------------------------------------------------------------------- conversations


def titles(page):
    return page.js("[...document.querySelectorAll('.conversations .open')].map((one) => one.textContent)")


def test_conversations_outlive_the_page(page, server):
    server.scripts += [says("**bold** answer"), says("second answer")]
    ask(page, "First question")
    finished(page)
    page.click("#new")
    ask(page, "Second question")
    finished(page)
    page.reload()
    page.wait_text(LAST, "second answer")
    assert titles(page) == ["Second question", "First question"]
    page.click(".conversations .open", "First question")
    page.wait_text(LAST, "bold answer")
    assert page.text(f"{LAST} strong") == "bold"
    page.reload()
    page.wait_text(LAST, "bold answer")


def test_an_answer_goes_on_in_the_background(page, server):
    gate = Gate()
    server.scripts += [[event({"content": "slow "}), gate, event({"content": "end"}), ending()],
                       says("quick")]
    ask(page, "Slow")
    page.wait_text(LAST, "slow")
    page.click("#new")
    ask(page, "Quick")
    finished(page)
    gate.open()
    page.wait("![...document.querySelectorAll('.conversations .running')].length")
    assert page.text(f"{LAST} .content") == "quick"
    page.click(".conversations .open", "Slow")
    page.wait_text(LAST, "slow end")


def test_a_page_that_goes_away_keeps_half_an_answer(page, server):
    gate = Gate()
    server.scripts.append([event({"content": "Half"}), gate])
    ask(page, "Hello")
    page.wait_text(LAST, "Half")
    page.reload()
    page.wait(f"document.querySelector('{LAST}')?.ariaBusy === 'false'")
    assert page.text(f"{LAST} .content") == "Half"
    assert page.exists(f"{LAST} .actions")
    gate.open()


def test_conversations_are_renamed_and_deleted(page, server):
    server.scripts.append(says("answer"))
    ask(page, "Question")
    finished(page)
    page.click(".conversations button", "Rename")
    page.type("A better title")
    page.press("Enter")
    page.wait("document.title.startsWith('A better title')")
    page.reload()
    page.wait_text(".conversations", "A better title")
    page.click(".conversations button", "Delete")
    assert titles(page) == ["A better title"]
    page.click(".conversations button", "Really?")
    page.wait("!document.querySelectorAll('.conversations .open').length")
    assert page.exists(".welcome")
    page.reload()
    page.wait("Boolean(document.querySelector('.welcome'))")
    assert titles(page) == []


def test_exported_conversations_can_be_imported(page, server):
    server.scripts += [[event({"reasoning_content": "hm"}), *call_script()], says("Rain.")]
    ask(page, "Weather?")
    finished(page)
    page.click(".answer > .primary")
    finished(page, 2)
    exported = page.js("""(async () => {
      const store = await import('./store.js');
      return store.exportText(store.loadAll());
    })()""")
    assert json.loads(exported)["conversations"][0]["title"] == "Weather?"

    def choose(text):
        page.js(f"""(() => {{
          const files = new DataTransfer();
          files.items.add(new File([{json.dumps(text)}], 'a.json'));
          const input = document.querySelector('#import-file');
          input.files = files.files;
          input.dispatchEvent(new Event('change'));
        }})()""")

    choose(exported)
    page.wait("document.querySelectorAll('.conversations .open').length === 2")
    assert titles(page) == ["Weather?"] * 2
    assert page.text(f"{LAST} .content") == "Rain."
    for text, words in (("{", "not JSON"), ("[]", "no conversations"),
                        ('{"conversations": [{"messages": [{"role": "x"}]}]}', "unknown role x")):
        choose(text)
        page.wait_text("#toast", words)
    page.js("""(() => {
      const click = HTMLAnchorElement.prototype.click;
      HTMLAnchorElement.prototype.click = function() { window.saved = [this.download, this.href]; };
    })()""")
    page.click("#export")
    assert page.js("window.saved[0]") == "kuruma-conversations.json"
    assert page.js("window.saved[1]").startswith("blob:")


# ------------------------------------------------------------------------------------- markdown


MARKDOWN = """# Title
A **bold** and *slanted* and ***both*** `code <b>` [site](https://example.org/a_(b)) ~~old~~ line
second line, snake_case_name and 2 * 3 * 4

- one
- two
  - inner
  1. ordered inner

3. three
4. four

> quoted
> text

| a | b |
|---|--:|
| 1 | `2` |

```python
if x < 1:
    print("<script>")
```

---
end"""


def test_markdown_becomes_elements(page, server):
    server.scripts.append(says(*MARKDOWN))
    ask(page, "Show")
    finished(page)
    shown = page.js("""(() => {
      const all = (selector) => [...document.querySelectorAll('.answer .content ' + selector)];
      const texts = (selector) => all(selector).map((one) => one.textContent);
      return {heading: texts('h3'), strong: texts('strong'), em: texts('em'), code: texts(':not(pre) > code'),
              links: all('a').map((one) => [one.textContent, one.href, one.rel]), del: texts('del'),
              breaks: all('p br').length, lists: all(':is(ul, ol):not(:is(ul, ol) *)').map((one) => one.tagName + (one.start ?? '')),
              inner: texts('ul ul > li'), quote: texts('blockquote p'), th: texts('th'), td: texts('td'),
              block: texts('pre'), rule: all('hr').length, last: texts('> p:last-child')};
    })()""")
    assert shown == {
        "heading": ["Title"], "strong": ["bold", "both"], "em": ["slanted", "both"],
        "code": ["code <b>", "2"],
        "links": [["site", "https://example.org/a_(b)", "noopener noreferrer"]], "del": ["old"],
        "breaks": 2, "lists": ["UL", "OL3"], "inner": ["inner"], "quote": ["quotedtext"],
        "th": ["a", "b"], "td": ["1", "2"], "block": ['if x < 1:\n    print("<script>")'],
        "rule": 1, "last": ["end"]}
    assert "snake_case_name and 2 * 3 * 4" in page.text(f"{LAST} .content")


HOSTILE = """<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>
[a](javascript:window.hacked=1) [b](data:text/html,x) ![p](https://example.org/p.png)
<a href="javascript:1">c</a> [d](JaVaScRiPt:1) <javascript:1>

| <img src=x onerror=window.hacked=1> | b |
|--|--|
| <svg onload=window.hacked=1> | [x](vbscript:1) |

```"><img src=x onerror=window.hacked=1>
<iframe src=javascript:1>
```
"""


def test_markup_in_model_text_stays_text(page, server):
    server.scripts.append([event({"reasoning_content": HOSTILE}), event({"content": HOSTILE}),
                           event({"tool_calls": [{"index": 0, "id": "c", "function": {
                               "name": "<img src=x onerror=window.hacked=1>", "arguments": HOSTILE}}]}),
                           ending()])
    ask(page, HOSTILE)
    finished(page)
    assert page.js("document.querySelectorAll('#messages img, #messages script, #messages iframe, "
                   "#messages [onerror], #messages [onload], #messages header svg').length") == 0
    assert page.js("window.hacked") is None
    assert page.js("[...document.querySelectorAll('#messages a')].map((a) => a.href)") == [
        "https://example.org/p.png"]
    assert '<img src=x onerror="window.hacked=1">' in page.text(f"{LAST} .content p")
    assert "<svg onload=window.hacked=1>" in page.text(f"{LAST} td")


def test_markdown_of_any_text_ends(page):
    """Nested, unclosed and very long constructs."""
    lengths = page.js("""(async () => {
      const { block, splitBlocks } = await import('./markdown.js');
      const texts = ['*'.repeat(6000), '**a '.repeat(1500), '['.repeat(6000), '[a]('.repeat(1500),
        '`'.repeat(2999) + 'a', '> '.repeat(1500) + 'x', '- '.repeat(900) + 'x', '|a'.repeat(900) + '\\n|-',
        '_a'.repeat(900), 'http://'.repeat(900), '~~~\\n'.repeat(901), '  '.repeat(900) + '- x', '\\\\',
        '1. a\\n'.repeat(900), '# '.repeat(900), '* * '.repeat(900), '<http://'.repeat(900)];
      return texts.map((text) => splitBlocks(text).map((one) => block(one)).length);
    })()""")
    assert all(length >= 1 for length in lengths) and len(lengths) == 17


def test_growing_text_keeps_the_elements_that_do_not_change(page, server):
    gate = Gate()
    server.scripts.append([event({"content": "Kept paragraph.\n\nNext"}), gate,
                           event({"content": " one"}), ending()])
    ask(page, "Grow")
    page.wait_text(LAST, "Next")
    page.js("document.querySelector('.content p').isKept = true")
    gate.open()
    page.wait_text(LAST, "Next one")
    assert page.js("document.querySelector('.content p').isKept")


def test_code_and_messages_are_copied(page, server):
    server.scripts.append(says("```\nx = 1\n```"))
    ask(page, "Code")
    finished(page)
    page.js("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    for selector, text in ((".code button", "x = 1"), (".user button", "Code"),
                           (".answer footer button", "```\nx = 1\n```")):
        page.click(selector, "Copy")
        page.wait(f"window.copied === {json.dumps(text)}")
    page.wait_text("#live", "Copied")


# ------------------------------------------------------------------------------------- access


def test_everything_works_from_the_keyboard(page, server):
    gate = Gate()
    server.scripts += [says("One."), [event({"content": "Two"}), gate], says("Three.")]
    assert page.focused() == "prompt"
    page.type("line one")
    page.press("Shift+Enter")
    page.type("line two")
    page.press("Enter")
    finished(page)
    assert messages(server) == [("user", "line one\nline two")]
    page.type("again")
    page.press("Enter")
    page.wait_text(LAST, "Two")
    page.press("Escape")
    page.wait_text(f"{LAST} .usage", "stopped")
    gate.open()
    page.press("Shift+Tab")  # the answer's buttons are in front of the message box
    while page.focused() != "Regenerate":
        page.press("Shift+Tab")
    page.press("Enter")
    page.wait_text(LAST, "Three.")
    page.js("document.activeElement.blur()")
    page.press("/")
    assert page.focused() == "prompt"
    page.type("a/b")
    assert page.js("document.activeElement.value") == "a/b"
    page.js("document.querySelector('#toggle-settings').focus()")
    page.press("Enter")
    page.wait("document.activeElement.name === 'model'")
    page.press("Ctrl+k")
    assert page.focused() == "prompt"


def test_focus_is_visible_on_every_control(page, server):
    server.scripts.append(says("`a`\n\n```\nx\n```"))
    ask(page, "Hello")
    finished(page)
    page.click("#toggle-settings")
    seen = set()
    for _ in range(60):
        page.press("Tab")
        name, outline = page.js("""(() => {
          const node = document.activeElement, box = node.closest('.box');
          return [node.id || node.name || node.textContent || node.tagName, node.tagName === 'BODY' ||
            getComputedStyle(node).outlineStyle !== 'none' ||
            (box && getComputedStyle(box).borderColor !== getComputedStyle(document.querySelector('.wide')).borderColor)];
        })()""")
        assert outline, name
        seen.add(name)
    assert {"toggle-list", "tab-dashboard", "new", "prompt", "send", "system", "key", "Regenerate",
            "theme", "Copy", "Edit"} <= seen, seen


def test_a_finished_answer_is_announced(page, server):
    gate = Gate()
    server.scripts.append([event({"content": "First paragraph.\n\nSecond"}), gate,
                           event({"content": " paragraph."}), ending()])
    ask(page, "Hello")
    page.wait("document.querySelector('#live').textContent === 'First paragraph.'")
    gate.open()
    page.wait("document.querySelector('#live').textContent === 'Second paragraph.'")


def test_every_control_has_a_name(page, server):
    server.scripts.append(call_script())
    ask(page, "Hello")
    finished(page)
    page.click("#toggle-settings")
    nameless = page.js("""[...document.querySelectorAll('button, input, select, textarea, a')].filter((one) =>
      one.checkVisibility() && !one.ariaLabel && !one.textContent.trim() && !one.labels?.length)
      .map((one) => one.outerHTML)""")
    assert nameless == []


def test_the_theme_follows_the_system_until_chosen(page):
    def paper():
        return page.js("getComputedStyle(document.body).backgroundColor")
    page.media(prefers_color_scheme="light")
    light = paper()
    page.media(prefers_color_scheme="dark")
    dark = paper()
    assert light != dark
    page.click("#theme")
    assert paper() == light
    page.reload()
    assert paper() == light
    page.click("#theme")
    page.media(prefers_color_scheme="light")
    assert paper() == dark
    page.click("#theme")
    assert paper() == light and page.js("document.querySelector('#theme').ariaLabel") == "Theme: as the system"


def test_reduced_motion_stops_what_moves(page, server):
    gate = Gate()
    server.scripts.append([gate, event({"content": "x"}), ending()])
    ask(page, "Hello")
    page.wait("Boolean(document.querySelector('.waiting span')?.checkVisibility())")
    name = "getComputedStyle(document.querySelector('.waiting span')).animationName"
    assert page.js(name) == "breathe"
    page.media(prefers_reduced_motion="reduce")
    assert page.js(name) == "none"
    gate.open()
    finished(page)


def test_narrow_screens_do_not_scroll_sideways(page, server):
    wide = "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n|" + "cell | " * 20 + "\n|" + "--|" * 20
    server.scripts += [[event({"reasoning_content": "z" * 300}), event({"content": wide}), *call_script()],
                       Refusal(400, "w" * 300)]
    ask(page, "v" * 300)
    finished(page)
    ask(page, "again")
    page.wait("Boolean(document.querySelector('.error'))")
    page.resize(320, 640)
    page.wait("document.querySelector('#list-pane').hidden")

    def fits():
        """Nothing but what scrolls by itself reaches over the edge."""
        return page.js("""[...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() &&
          !one.closest('pre, .table, .unseen, .skip, svg, .brand span') &&
          (one.getBoundingClientRect().right > 320.5 || one.getBoundingClientRect().left < -0.5))
          .map((one) => one.outerHTML.slice(0, 90))""")
    assert page.js("document.documentElement.scrollWidth") == 320
    assert page.js("document.querySelector('#scroll').scrollWidth") == 320
    assert fits() == []
    page.click("#toggle-list")
    page.wait("document.activeElement.id === 'new'")
    assert fits() == []
    page.press("Escape")
    assert page.focused() == "toggle-list"
    page.click("#toggle-settings")
    assert fits() == []
    page.click("#veil") if page.js("document.elementFromPoint(5, 300).id === 'veil'") else page.press("Escape")
    page.click("#tab-dashboard")
    page.wait("Boolean(document.querySelector('.chart')?.checkVisibility())")
    assert fits() == []
