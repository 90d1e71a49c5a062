"""What is said about a pull request, for people."""

from __future__ import annotations

from contribbot.model.follow import Remark, ReviewsReport, ThreadView
from contribbot.report.text import clean


def reviews_lines(report: ReviewsReport) -> list[str]:
    """Return threads with their code and what was said, then the comments besides."""
    lines = [f"{report.patch}: {report.reference} {report.url}"]
    if not report.known:
        lines.append("GitHub does not say which threads are resolved: all are listed")
    for one in report.threads:
        lines += ["", *_thread(one, known=report.known)]
    if not report.threads:
        lines.append("no open threads")
    if report.hidden:
        lines.append("")
        lines.append(f"resolved, and shown with --all: {report.hidden}")
    if report.comments:
        lines += ["", "besides:"]
        if report.earlier:
            lines.append(f"  ({report.earlier} earlier ones are shown with --all)")
        for said in report.comments:
            lines += [f"  {row}" for row in _said(said)]
    return [clean(line).rstrip() for line in lines]


def _thread(one: ThreadView, *, known: bool) -> list[str]:
    line = one.line or one.was
    place = f"{one.file}:{line}" if line else one.file
    side = " (a line of the base)" if one.side == "base" else ""
    marks = [
        *(["resolved"] if one.resolved else []),
        *(["outdated"] if one.outdated or (one.line is None and one.was is not None) else []),
        *(["answered"] if one.answered else []),
        *(["not known if resolved"] if known and one.resolved is None else []),
    ]
    told = f"  ({', '.join(marks)})" if marks else ""
    lines = [f"{one.id}  {place}{side}{told}"]
    lines += [f"    | {row}" for row in one.code]
    for said in one.comments:
        lines += [f"  {row}" for row in _said(said)]
    return lines


def _said(said: Remark) -> list[str]:
    at = f", {said.at:%Y-%m-%d %H:%M}" if said.at is not None else ""
    verdict = f", {said.verdict}" if said.verdict else ""
    rows = said.text.split("\n") if said.text else []
    return [f"{said.author}{at}{verdict}  {said.url}", *(f"    {row}" for row in rows)]
