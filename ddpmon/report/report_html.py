"""A report as one HTML page that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from ddpmon.format import clean, figure, loss_brief
from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.report_charts import curve, rank_bars
from ddpmon.report.report_markdown import RANK_COLUMNS, notable_hosts, rank_cells, which_ranks, worst_ranks
from ddpmon.report.run_report import Event, RunReport, configuration, cost_words, facts, when_words
from ddpmon.report.wording import last_steps
from ddpmon.schema import PHASES

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #60676e; --page: #fff; --rule: #d9dde1; --accent: #c2500a;
  --broken: #b3261e; --line: #2b6cb0; --input: #8fb8de; --forward: #5f97cc; --backward: #2f74b5; --optimizer: #1d5487;
  --other: #aab4bd; --wait: #e6e9ec; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --dim: #9aa3ab; --page: #14171a; --rule: #343a40;
  --accent: #ff9a52; --broken: #ff7b72; --line: #7db4ea; --other: #6b747c; --wait: #2a2f34; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; } p { margin: .3rem 0; }
.verdict { font-size: 1.15rem; font-weight: 600; margin: .2rem 0 1rem; }
.warning, .critical { color: var(--accent); } .critical { color: var(--broken); }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem 1rem; margin: 0; }
.facts dt { color: var(--dim); font-size: .85rem; } .facts dd { margin: 0; font-variant-numeric: tabular-nums; }
article { border-left: 3px solid var(--rule); padding: .1rem 0 .1rem .8rem; margin: 0 0 1rem; break-inside: avoid; }
article.warning, article.critical { color: inherit; border-color: var(--accent); }
article.critical { border-color: var(--broken); } article .dim, .dim { color: var(--dim); font-size: .9rem; }
.tag { font-size: .8rem; font-weight: 600; text-transform: uppercase; letter-spacing: .03em; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--rule); font-size: .8rem; overflow-wrap: normal; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
td.words, th.words { text-align: left; } .set td { text-align: left; white-space: normal; }
figure { margin: 0 0 1rem; break-inside: avoid; } figcaption { color: var(--dim); font-size: .85rem; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
svg text.named { fill: var(--accent); font-weight: 700; } .grid { stroke: var(--rule); }
.line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.band.warning { fill: var(--accent); opacity: .16; }
.band.critical { fill: var(--broken); opacity: .16; }
rect.input { fill: var(--input); } rect.forward { fill: var(--forward); } rect.backward { fill: var(--backward); }
rect.optimizer { fill: var(--optimizer); } rect.other { fill: var(--other); } rect.wait { fill: var(--wait); }
.key span { display: inline-block; margin-right: .8rem; } .key i { display: inline-block; width: .8rem; height: .8rem;
  margin-right: .3rem; vertical-align: -.05rem; }
@media (max-width: 40rem) { body { font-size: 15px; } svg text { font-size: 19px; } }
@media print { body { max-width: none; font-size: 11pt; } a { color: inherit; } }
"""


def page(report: RunReport) -> str:
    """The whole page; foreign text is cleaned and escaped."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{_text(report.title)}: ddpmon</title><style>{_STYLE}</style></head><body>",
            *_parts(report),
            "</body></html>\n",
        ]
    )


def _text(words: str) -> str:
    return escape(clean(words))


def _parts(report: RunReport) -> Iterator[str]:
    worst = report.troubles[0].severity if report.troubles and report.troubles[0].lasts else "info"
    yield f"<h1>{_text(report.title)}</h1>"
    yield f'<p class="verdict {worst}">{_text(report.verdict)}</p>'
    pairs = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts(report))
    yield f'<dl class="facts">{pairs}</dl>'
    yield from (f'<p class="dim">{_text(note)}</p>' for note in report.notes)
    yield from _curves(report)
    yield from _ranks(report)
    yield "<h2>What happened</h2>"
    yield from (f"<p>{_text(said)}</p>" for said in report.preface)
    yield from (_event(event, report) for event in report.troubles)
    yield from _rank_table(report)
    yield from _rest(report)


def _curves(report: RunReport) -> Iterator[str]:
    series = report.snapshot.series
    if series is None:
        return
    loud = [event for event in report.troubles if event.severity != "info"]
    none: list[Event] = []
    drawn = (
        ("step time, ms; shaded while a warning lasted", series.step_ms, loud, figure),
        ("loss", series.loss, none, loss_brief),
        (f"throughput, {clean(report.snapshot.job.throughput_unit)}", series.throughput, loud, figure),
    )
    pictures = [(label, curve(series.step, values, label, events, words)) for label, values, events, words in drawn]
    if any(picture for _, picture in pictures):
        yield "<h2>The run over its steps</h2>"
    for label, picture in pictures:
        if picture:
            yield f"<figure>{picture}<figcaption>{_text(label)}</figcaption></figure>"


def _event(event: Event, report: RunReport) -> str:
    over = "" if event.lasts else ", over"
    said = (
        ("when", when_words(event)),
        ("cost", cost_words(event, report)),
        ("evidence", evidence_words(event.evidence, is_over=not event.lasts)),
        ("to do", event.to_do),
    )
    lines = "".join(f'<p><span class="dim">{name}:</span> {_text(words)}</p>' for name, words in said if words)
    for name, rows in evidence_blocks(event.evidence):
        lines += f'<p class="dim">{_text(name)}</p><pre>{escape(chr(10).join(map(clean, rows)))}</pre>'
    tag = f'<span class="tag {event.severity}">{event.severity}{over}</span>'
    return f'<article class="{event.severity}">{tag}<h3>{_text(event.summary)}</h3>{lines}</article>'


def _ranks(report: RunReport) -> Iterator[str]:
    run, ranks, chosen = report.snapshot.run, report.snapshot.ranks, worst_ranks(report)
    if ranks is None or not chosen:
        return
    yield "<h2>Who worked, who waited</h2>"
    which = which_ranks(report, chosen)
    some = f"{which}; " if which else ""
    keys = "".join(f'<span><i style="background: var(--{name})"></i>{name}</span>' for name in (*PHASES, "wait"))
    caption = f'{some}medians over the {last_steps(run.step if run else None)}<br><span class="key">{keys}</span>'
    yield f"<figure>{rank_bars(report)}<figcaption>{caption}</figcaption></figure>"


def _rank_table(report: RunReport) -> Iterator[str]:
    ranks, chosen = report.snapshot.ranks, worst_ranks(report)
    if ranks is None or not chosen:
        return
    yield "<h2>Ranks at the end</h2>"
    head = "".join(f"<th>{name}</th>" for name, _ in RANK_COLUMNS)
    rows = "".join(
        f'<tr><td>{rank}</td><td class="words">{_text(ranks.host[rank])}</td><td class="words">'
        f"{_text(ranks.state[rank])}</td>"
        f"{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"
        for rank, cells in zip(chosen, rank_cells(report, ranks, chosen), strict=True)
    )
    words = '<th class="words">host</th><th class="words">state</th>'
    yield f'<div class="scroll"><table><tr><th>rank</th>{words}{head}</tr>{rows}</table></div>'


def _rest(report: RunReport) -> Iterator[str]:
    if report.advice:
        yield "<h2>Settings to try</h2>"
        yield _list(f"{event.summary} {event.advice}".strip() for event in report.advice)
    if hosts := notable_hosts(report):
        yield "<h2>Hosts at the end</h2>"
        yield _list(f"{host}: {words}" for host, words in hosts)
    yield "<h2>Configuration</h2>"
    rows = "".join(f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>" for name, value in configuration(report))
    yield f'<table class="set">{rows}</table>'


def _list(rows: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(row)}</li>' for row in rows)}</ul>"
