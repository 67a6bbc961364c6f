"""From a slider's step to the new picture: hardly longer than the request itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

STEPS = 60
BUDGET = 33.0  # ms on top of the request, p95: two frames

MEASURE = """async (steps) => {
    const control = document.querySelector('.lab input[type=range]');
    const seen = document.querySelector('.seen');
    const spent = [];
    performance.setResourceTimingBufferSize(1000);
    for (let i = 0; i < steps; i += 1) {
        performance.clearResourceTimings();
        const drawn = new Promise((resolve) => {
            const watcher = new MutationObserver(() => { watcher.disconnect(); resolve(performance.now()); });
            watcher.observe(seen, {childList: true, characterData: true, subtree: true});
        });
        const from = performance.now();
        control.value = String(Number(control.value) === 1 ? 2 : 1);
        control.dispatchEvent(new Event('input', {bubbles: true}));
        const until = await drawn;
        const [request] = performance.getEntriesByType('resource').filter((e) => e.name.includes('/api/labs/'));
        spent.push(until - from - (request ? request.duration : 0));
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return spent.sort((a, b) => a - b);
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rope", "pe", "swiglu"])
def test_a_step_of_a_slider_is_drawn_within_two_frames(lab: Callable[[str], Page], name: str) -> None:
    page = lab(name)
    page.wait_for_load_state("networkidle")
    # The best of three rounds: other work on this machine must not decide.
    worst = [page.evaluate(MEASURE, STEPS)[int(0.95 * STEPS)] for _ in range(3)]
    assert min(worst) < BUDGET, worst
