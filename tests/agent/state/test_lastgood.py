"""An agent that was told to remember: a restart with every upstream dead, and what it says about that."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.agent.process import AgentProcess, write
from tests.real.processes import claim_port, until

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "off"]}
BULK = "/ofrep/v1/evaluate/flags"


def evaluate(agent: AgentProcess, key: str, **context: str) -> dict[str, Any]:
    """Ask by every protocol, and see that they agree."""
    body = {"flagKey": key, "context": context}
    answers = [
        agent.fetch(
            "evaluation", f"/flagd.evaluation.{version}.Service/ResolveBoolean", body, content_type="application/json"
        )
        for version in ("v1", "v2")
    ]
    answers.append(agent.fetch("OFREP", f"{BULK}/{key}", {"context": context}))
    found = [json.loads(answer) for _, answer in answers]
    bulk = json.loads(agent.fetch("OFREP", BULK, {"context": context})[1])["flags"]
    found.append(next(flag for flag in bulk if flag["key"] == key))
    told = [{name: answer[name] for name in ("value", "variant", "reason")} for answer in found]
    assert told[1:] == told[:-1]
    return told[0]


def metric(agent: AgentProcess, name: str) -> float:
    lines = agent.fetch("management", "/metrics")[1].decode().splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


def failing(agent: AgentProcess) -> Any:
    """Return what the page says of the only source, once it is failing."""
    (source,) = json.loads(agent.fetch("management", "/debug/sources")[1])
    return source if source["state"] == "failing" else None


def kept(state: Path, flags: Path, content: dict[str, Any], how: int = signal.SIGTERM) -> None:
    """Run an agent that keeps these flags, and end it once they are on disk."""
    write(flags, {"flags": content})
    with AgentProcess(f"--uri=file:{flags}", f"--state-dir={state}") as agent:
        if how == signal.SIGKILL:
            until(lambda: metric(agent, "wigwag_state_saved_seconds"), "saving")
        agent.stop(how)


def test_after_a_restart_with_every_upstream_dead_the_last_good_flags_are_served_and_say_so(tmp_path: Path) -> None:
    state, flags = tmp_path / "state", tmp_path / "flags.json"
    for how in (signal.SIGTERM, signal.SIGKILL):
        kept(state, flags, {"x": FLAG, "y": {**FLAG, "targeting": RULE}, "z": {**FLAG, "state": "DISABLED"}}, how)
        flags.unlink()
        start = time.monotonic()
        with AgentProcess(f"--uri=file:{flags}", f"--state-dir={state}") as agent:
            assert agent.fetch("management", "/readyz")[0] == 200
            print(f"served after {time.monotonic() - start:.2f} s")
            assert evaluate(agent, "x") == {"value": True, "variant": "on", "reason": "STALE"}
            assert evaluate(agent, "y", tier="gold") == {"value": False, "variant": "off", "reason": "STALE"}
            source = until(lambda agent=agent: failing(agent), "the source failing")  # type: ignore[misc]
            assert (source["restored"], source["stale"]) == (True, True)
            assert source["ageSeconds"] >= 0
            assert metric(agent, "wigwag_source_stale") == 1
            agent.wait_for_log(lambda line: "restored" in line["msg"])
            agent.wait_for_log(lambda line: "are stale" in line["msg"])
            write(flags, {"flags": {"x": {**FLAG, "defaultVariant": "off"}}})
            agent.wait_for_log(lambda line: "fresh again" in line["msg"])
            assert evaluate(agent, "x") == {"value": False, "variant": "off", "reason": "STATIC"}
            assert metric(agent, "wigwag_source_stale") == 0


def test_whoever_wants_only_fresh_flags_waits_for_them(tmp_path: Path) -> None:
    state, flags = tmp_path / "state", tmp_path / "flags.json"
    kept(state, flags, {"x": FLAG})
    flags.unlink()
    with AgentProcess(f"--uri=file:{flags}", f"--state-dir={state}", "--readiness=fresh") as agent:
        assert agent.fetch("management", "/readyz")[0] == 412
        assert evaluate(agent, "x")["reason"] == "STALE"
        write(flags, {"flags": {"x": FLAG}})
        agent.wait_for_log(lambda line: "fresh again" in line["msg"])
        assert agent.fetch("management", "/readyz")[0] == 200


def test_a_source_that_answers_replaces_its_own_flags_only(tmp_path: Path) -> None:
    state, one, two = tmp_path / "state", tmp_path / "one.json", tmp_path / "two.json"
    write(one, {"flags": {"x": FLAG}})
    write(two, {"flags": {"y": FLAG}})
    sources = (f"--uri=file:{one}", f"--uri=file:{two}", f"--state-dir={state}")
    with AgentProcess(*sources) as agent:
        agent.stop()
    two.unlink()
    write(one, {"flags": {"x": {**FLAG, "defaultVariant": "off"}}})
    with AgentProcess(*sources) as agent:
        agent.wait_for_log(lambda line: "fresh again" in line["msg"])
        assert evaluate(agent, "x") == {"value": False, "variant": "off", "reason": "STATIC"}
        assert evaluate(agent, "y") == {"value": True, "variant": "on", "reason": "STALE"}


def test_a_flag_in_quarantine_keeps_its_last_good_definition_across_a_restart(tmp_path: Path) -> None:
    state, flags = tmp_path / "state", tmp_path / "flags.json"
    kept(state, flags, {"x": FLAG, "y": FLAG})
    write(flags, {"flags": {"x": {"variants": "broken"}, "y": FLAG}})
    with AgentProcess(f"--uri=file:{flags}", f"--state-dir={state}") as agent:
        agent.wait_for_log(lambda line: "fresh again" in line["msg"])
        assert evaluate(agent, "x")["value"] is True


def test_a_state_directory_that_cannot_be_used_is_told_and_never_in_the_way(tmp_path: Path) -> None:
    flags, state = tmp_path / "flags.json", tmp_path / "state"
    write(flags, {"flags": {"x": FLAG}})
    state.write_text("a file where a directory should be")
    with AgentProcess(f"--uri=file:{flags}", f"--state-dir={state}") as agent:
        agent.wait_for_log(lambda line: str(state) in line["msg"] and line["level"] == "warning")
        assert evaluate(agent, "x")["reason"] == "STATIC"


def test_old_flags_are_called_stale_and_every_answer_can_tell_its_age(tmp_path: Path) -> None:
    flags = tmp_path / "flags.json"
    write(flags, {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{flags}", "--stale-after=200ms", "--response-metadata") as agent:
        flags.unlink()
        until(lambda: failing(agent), "the source failing")
        until(lambda: metric(agent, "wigwag_source_stale"), "the flags being stale")
        agent.wait_for_log(lambda line: "are stale" in line["msg"])
        assert evaluate(agent, "x")["reason"] == "STALE"
        snapshot = json.loads(agent.fetch("management", "/debug/flags")[1])["snapshot"]
        told = json.loads(agent.fetch("OFREP", f"{BULK}/x", {})[1])["metadata"]
        assert told["wigwag.snapshot"] == snapshot
        assert told["wigwag.age"] > 0.2


def test_an_agent_that_knows_nothing_yet_takes_no_flags_from_those_behind_it(tmp_path: Path) -> None:
    """Restart the first of two chained agents without its file, and with one of two: the second keeps what it has."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write(one, {"flags": {"x": FLAG}})
    write(two, {"flags": {"y": FLAG}})
    sources = (f"--uri=file:{one}", f"--uri=file:{two}")
    ports = {"sync-port": claim_port()}
    with (
        AgentProcess(*sources, ports=ports) as first,
        AgentProcess(f"--uri=grpc://{first.address('sync')}", f"--state-dir={tmp_path / 'state'}") as second,
    ):
        first.stop()
        seen = len(second.lines)
        two.unlink()
        with AgentProcess(*sources, ports=ports) as again:  # after its grace it serves a part
            assert again.fetch("management", "/readyz")[0] == 412
            assert evaluate(again, "x")["value"] is True
            second.wait_for_log(lambda line: "not every required source" in line["msg"], seen)
            assert evaluate(second, "x")["value"] is True
            assert evaluate(second, "y")["value"] is True
            seen = len(second.lines)
            write(two, {"flags": {"y": {**FLAG, "defaultVariant": "off"}}})
            second.wait_for_log(lambda line: line["msg"] == "snapshot published", seen)
            assert evaluate(second, "y")["value"] is False


def test_restored_flags_do_not_wait_for_a_source_that_is_new(tmp_path: Path) -> None:
    state, flags = tmp_path / "state", tmp_path / "flags.json"
    kept(state, flags, {"x": FLAG})
    flags.unlink()
    sources = (f"--uri=file:{flags}", f"--uri=file:{tmp_path / 'new.json'}")
    with AgentProcess(*sources, f"--state-dir={state}") as agent:
        published, serves = (
            datetime.fromisoformat(next(line["ts"] for line in agent.lines if wanted in line["msg"]))
            for wanted in ("published", "is serving")
        )
        assert abs(published - serves) < timedelta(seconds=4)  # not one after the grace of the other, which is 5 s
        assert evaluate(agent, "x")["reason"] == "STALE"
