"""The dashboard against scripted numbers."""

from mock import stats

HEAD = "document.querySelector('#numbers tbody')"


def rows(page):
    return page.js(f"""Object.fromEntries([...{HEAD}.rows].map((row) =>
      [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent)]))""")


def show(page, server, *looks):
    """Gives the page one answer after the other; the time between two is a second for the page."""
    page.js("""(() => {
      const real = performance.now.bind(performance);
      const wait = window.setTimeout;
      let looks = 0;
      const frozen = real();
      performance.now = () => frozen + looks * 1000;
      window.setTimeout = (action, ms) => wait(() => {
        if (ms === 1000) ++looks;
        action();
      }, ms === 1000 ? 20 : ms);
    })()""")
    for look in looks:
        server.stats.put(look)
    page.click("#tab-dashboard")


def test_numbers_and_rates(page, server):
    # The last one's counters stand still but for its mark, so that further looks change no extremes.
    show(page, server, stats(),
         stats(tokens__generated=5600, tokens__prompt=1200, tokens__cached=500, steps=110, rows=900,
               uptime_s=3701),
         stats(tokens__generated=5600, tokens__prompt=1200, tokens__cached=500, steps=110, rows=900,
               uptime_s=3702, requests__running=4, ttft_ms__p99=1500.0))
    page.wait(f"{HEAD}.rows[0]?.cells[1].textContent === '4'")
    shown = rows(page)
    assert shown["Requests, running"] == ["4", "2", "4"]
    assert shown["Requests, waiting"] == ["1", "1", "1"]
    assert shown["Tokens out, generated"][1:] == ["0/s", "600/s"]
    assert shown["Tokens in, prompt"][2] == "200/s" and shown["Tokens in, cached"][2] == "100/s"
    assert shown["Rows per step, rows"] == ["10", "10", "10"]
    assert shown["Cache hits, share of the prompt"] == ["50 %", "50 %", "50 %"]
    assert shown["Blocks in use, in use"][0] == "128"
    assert shown["First token, p50"][0] == "120 ms" and shown["First token, p99"][0] == "1.5 s"
    assert shown["Between tokens, p50"][0] == "13 ms"
    assert shown["Memory, resident"][0] == "300 MiB"
    facts = page.text("#facts").split("\n")
    facts = dict(zip(*[iter([line for line in facts if line])] * 2))
    assert facts == {"Model": "tiny", "Version": "0.1.0", "Up for": "1 h 1 min", "Finished": "40",
                     "Failed": "3", "Tokens generated": "5\u202f600", "Preemptions": "7", "Idle": "25 %"}


def test_charts_draw_each_series(page, server):
    show(page, server, *[stats(uptime_s=i, tokens__generated=500 * i, requests__running=i % 5)
                         for i in range(10)])
    page.wait("document.querySelector('.chart .line-0')?.getAttribute('d').split('L').length >= 9")
    assert page.js("document.querySelectorAll('.chart').length") == 9
    assert page.js("document.querySelectorAll('.chart .line').length") == 13
    assert page.js("[...document.querySelectorAll('.chart path')].every((path) => "
                   "!/NaN|Infinity|undefined/.test(path.getAttribute('d') ?? ''))")
    assert page.js("[...document.querySelectorAll('.chart')].every((one) => one.ariaHidden === 'true')"), \
        "the table is what is read aloud"


def test_a_restarted_server_begins_a_new_history(page, server):
    show(page, server, stats(uptime_s=900, tokens__generated=90000),
         stats(uptime_s=901, tokens__generated=90500), stats(uptime_s=1, tokens__generated=10),
         stats(uptime_s=2, tokens__generated=30, requests__running=9))
    page.wait(f"{HEAD}.rows[0]?.cells[1].textContent === '9'")
    lowest, highest = rows(page)["Tokens out, generated"][1:]
    assert highest == "20/s" and lowest in ("0/s", "20/s")


def test_silence_is_said_and_survived(page, server):
    show(page, server)  # nothing to tell: the server answers 503
    page.wait_text("#dashboard-status", "Trying again.")
    server.stats.put(stats(requests__running=5))
    page.wait(f"{HEAD}.rows[0]?.cells[1].textContent === '5'")
    assert page.text("#dashboard-status") == ""


def test_nothing_is_polled_behind_the_chat(page, server):
    show(page, server, stats())
    page.wait(f"{HEAD}.rows.length > 0")
    page.click("#tab-chat")
    page.wait("!document.querySelector('#dashboard-view').checkVisibility()")
    polls = page.js("performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/stats')).length")
    for _ in range(30):
        page.js("new Promise((done) => requestAnimationFrame(done))")
    now = page.js("performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/stats')).length")
    assert now <= polls + 1, "one may have been on its way"


def test_a_missing_key_is_asked_for(page, server):
    server.key = "secret"
    server.stats.put(stats())
    page.click("#tab-dashboard")
    page.wait("document.querySelector('#key-dialog').open")
    page.type("secret")
    page.press("Enter")
    page.wait(f"{HEAD}.rows.length > 0")
