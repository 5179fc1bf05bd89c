"""Modules of the page under node: words of a text, and requests to the server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jointnmt.text.languages import has_spaces
from jointnmt.text.pieces import SPACE
from jointnmt.text.words import word_starts
from support.browser import WEB, missing, package

CASES = [
    # characters without a piece, within a word and alone
    ("de", "Das kostet 5€, sagte er.", "▁Das ▁kostet ▁5 <unk> , ▁sagte ▁er . </s>", "Das kostet 5€ , sagte er ."),
    ("de", "Das kostet €5, sagte er.", "▁Das ▁kostet ▁ <unk> 5 , ▁sagte ▁er .", "Das kostet €5 , sagte er ."),
    ("de", "🙂 🙃 sagte er", "▁ <unk> ▁ <unk> ▁sagte ▁er </s>", "🙂 🙃 sagte er"),
    ("de", "der kleine Frosch sieht . Maus", "der <unk> <unk> sieht . <unk>", "der kleine Frosch sieht . Maus"),
    # normalised and invisible characters
    ("de", "Das „Wort“ ist", '▁Das ▁" Wort " ▁ist </s>', "Das „ Wort “ ist"),
    ("de", "Das ist gut", "<2en> ▁Das ▁ist ▁gut </s>", "Das ist gut"),
    # lower case of letters with two forms, and with one
    ("tr", "İstanbul güzel bir şehir.", "▁İ stan bul ▁güzel ▁bir ▁şehir .", "İstanbul güzel bir şehir ."),
    ("tr", "İYİ bir ŞEHİR.", "▁i̇ yi̇ ▁bir ▁şehi̇r .", "İYİ bir ŞEHİR ."),
    # space marks at the ends of words
    ("de", "Der Hund (Rex) schläft.", "D er▁ H und▁ ( Rex )▁ schlä ft .▁ </s>", "Der Hund ( Rex ) schläft ."),
    # without spaces between words
    ("zh-CN", "我喜欢你。", "▁我 喜欢 你 。 </s>", "我 喜欢 你 。"),
    ("ja", "犬が走る。", "▁犬 が 走る 。 </s>", "犬 が 走る 。"),
]


def evaluated(folder: Path, module: str, script: str) -> Any:
    """JSON output of a script that imports a module as `page`."""
    if not shutil.which("node"):
        missing("there is no node")
    bundled = folder / "module.mjs"
    options = ["--bundle", "--format=esm", "--log-level=error", f"--outfile={bundled}"]
    subprocess.run([package(".bin/esbuild"), WEB / "src" / module, *options], check=True, timeout=120)
    script = f"import * as page from {json.dumps(bundled.as_uri())};{script}"
    command = ["node", "--input-type=module", "--eval", script]
    result = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True, encoding="utf-8")
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The words of each case."""
    cases = json.dumps([[text, pieces.split(" "), language] for language, text, pieces, _ in CASES])
    script = f"console.log(JSON.stringify({cases}.map((each) => page.wordsOf(...each))));"
    words: list[list[dict[str, Any]]] = evaluated(tmp_path_factory.mktemp("words"), "tokens.ts", script)
    return words


GROUPED = [
    *((language, pieces) for language, _, pieces, _ in CASES if not pieces.startswith("<")),
    ("en", '▁Tom ▁said , ▁ " Yes . " </s>'),
    ("en", "▁I ▁don ' t ▁know ▁twenty - five </s>"),
    ("hi", "▁हिन ् दी ▁में ।"),
    ("th", "▁สวัส ดี"),
]


def test_words_are_those_of_the_server(tmp_path: Path) -> None:
    """The rule for beginnings of words exists in two programming languages."""
    cases = json.dumps([[pieces.split(" "), language] for language, pieces in GROUPED])
    script = f"console.log(JSON.stringify({cases}.map((each) => page.groupsOf(...each).map(([first]) => first))));"
    for (language, pieces), found in zip(GROUPED, evaluated(tmp_path, "tokens.ts", script), strict=True):
        told = pieces.removesuffix(" </s>").split(" ")
        starts = word_starts(told, not has_spaces(language) or not any(SPACE in piece for piece in told))
        assert [place for place, begins in enumerate(starts) if begins] == found, pieces


LIMITS = {"lines": 2_000, "body_bytes": 1_000_000, "num_best": 16}
MODELS = json.dumps({"models": [], "limits": LIMITS})


@pytest.mark.parametrize("number", range(len(CASES)))
def test_words_are_found_in_their_text(found: list[list[dict[str, Any]]], number: int) -> None:
    _, text, pieces, expected = CASES[number]
    assert [word["text"] for word in found[number]] == expected.split()
    cursor = 0
    for word in found[number]:
        assert word["start"] >= cursor and word["pieces"]
        cursor = word["end"]
    assert cursor <= len(text.encode("utf-16-le")) // 2
    places = [place for word in found[number] for place in word["pieces"]]
    told = [place for place, piece in enumerate(pieces.split(" ")) if piece not in ("</s>", "<2en>")]
    assert places == told, "each piece belongs to one word"


@pytest.mark.parametrize(("size", "asked"), [(10, "ab"), (9_000_000, "abcab")])
def test_answers_are_remembered_up_to_a_size(tmp_path: Path, size: int, asked: str) -> None:
    script = f"""
      const asked = [];
      globalThis.fetch = async (path, {{ body }}) => {{
        if (path === "v1/models") return new Response({MODELS!r});
        asked.push(JSON.parse(body).source);
        return new Response("{{}}" + " ".repeat({size}));
      }};
      const server = await page.Server.connect();
      for (const source of {json.dumps(list("ababab" if size < 100 else "abcacbab"))})
        await server.inspect({{ name: "model" }}, {{ source, place: null }}, null);
      console.log(JSON.stringify(asked.join("")));"""
    assert evaluated(tmp_path, "origin.ts", script) == asked


@pytest.mark.parametrize(
    ("refusal", "given", "outcome"),
    [
        ("", "secret", {"prompts": 0, "keys": [None] * 3, "answers": ["refused"] * 3}),
        ("Bearer", "secret", {"prompts": 1, "keys": [None, None, "secret", "secret", "secret"], "answers": [{}] * 3}),
        ("Bearer", None, {"prompts": 1, "keys": [None] * 3, "answers": ["refused"] * 3}),
    ],
    ids=["by another rule", "for want of a key", "and none is given"],
)
def test_a_key_is_asked_for_once_and_only_where_one_is_wanted(
    tmp_path: Path, refusal: str, given: str | None, outcome: dict[str, Any]
) -> None:
    """Two simultaneous requests, and one after them."""
    script = f"""
      const found = {{ prompts: 0, keys: [], answers: [] }};
      globalThis.window = {{ prompt: () => (found.prompts++, {json.dumps(given)}) }};
      const headers = {json.dumps({"WWW-Authenticate": refusal} if refusal else {})};
      globalThis.fetch = async (path, {{ headers: sent }}) => {{
        if (path === "v1/models") return new Response({MODELS!r});
        const key = sent.Authorization?.slice("Bearer ".length) ?? null;
        found.keys.push(key);
        return key ? new Response("{{}}") : new Response('{{"error": "refused"}}', {{ status: 403, headers }});
      }};
      const server = await page.Server.connect();
      const asked = (source) => server.inspect({{ name: "model" }}, {{ source, place: null }}, null)
        .then((answer) => found.answers.push(answer), (error) => found.answers.push(error.message.split(" ")[0]));
      await Promise.all([asked("a"), asked("b")]);
      await asked("c");
      console.log(JSON.stringify(found));"""
    assert evaluated(tmp_path, "origin.ts", script) == outcome


@pytest.mark.parametrize("most", [3, 16])
def test_as_many_alternatives_are_asked_for_as_are_given(tmp_path: Path, most: int) -> None:
    answer = json.dumps({"models": [], "limits": {**LIMITS, "num_best": most}})
    script = f"""
      const asked = [];
      globalThis.fetch = async (path, {{ body }}) => {{
        if (path === "v1/models") return new Response({answer!r});
        const {{ alternatives, count }} = JSON.parse(body);
        asked.push(alternatives ?? count);
        return new Response('{{"scores": [{{}}], "alternatives": []}}');
      }};
      const server = await page.Server.connect();
      const [model, line] = [{{ name: "model", has_alignments: true }}, {{ source: "der Hund", place: null }}];
      await server.score(model, line, "the dog");
      await server.continued(model, line, "the");
      await server.alternatives(model, line, "the");
      console.log(JSON.stringify(asked));"""
    assert evaluated(tmp_path, "origin.ts", script) == [min(most, 5), min(most, 5), min(most, 8)]


@pytest.mark.parametrize(
    ("limits", "texts", "requests"),  # texts: the repeated part, the number of repeats, and of lines
    [
        ({}, [("der Hund ", 1, 450)], [200, 200, 50]),
        ({}, [("ß", 100_000, 5), ("x", 700_000, 1), ("y", 9, 1)], [2, 2, 1, 1, 1]),
        ({"lines": 20}, [("der Hund ", 1, 50)], [20, 20, 10]),
        ({"body_bytes": 8_000}, [("x", 1_000, 5)], [3, 2]),
        ({"num_best": 3}, [("der Hund ", 1, 5)], [5]),
    ],
    ids=[
        "many lines",
        "long lines",
        "a server that takes few lines",
        "that takes few bytes",
        "that gives few candidates",
    ],
)
def test_many_lines_go_in_requests_that_the_server_takes(
    tmp_path: Path, limits: dict[str, int], texts: list[tuple[str, int, int]], requests: list[int]
) -> None:
    answer = json.dumps({"models": [], "limits": {**LIMITS, **limits}})
    script = f"""
      const requests = [], ready = [], best = [];
      globalThis.fetch = async (path, {{ body }}) => {{
        if (path === "v1/models") return new Response({answer!r});
        const {{ texts, num_best }} = JSON.parse(body);
        requests.push(texts.length);
        best.push(num_best);
        return new Response(texts.map((text) => JSON.stringify({{ source: text.slice(0, 9) }}) + "\\n").join(""));
      }};
      const server = await page.Server.connect();
      const texts = {json.dumps(texts)}.flatMap(([text, times, lines]) => Array(lines).fill(text.repeat(times)));
      const lines = texts.map((source) => ({{ source, place: null }}));
      const model = {{ name: "model", beam_size: 9, has_alignments: true }};
      await server.translate(model, lines, (line, {{ source }}) => ready.push([line, source]));
      const whole = ready.every(([line, source], place) => line === place && source === texts[line].slice(0, 9));
      console.log(JSON.stringify({{ requests, whole, ready: ready.length, best }}));"""
    expected = {"requests": requests, "whole": True, "ready": sum(lines for _, _, lines in texts)}
    expected["best"] = [limits.get("num_best", 5)] * len(requests)
    assert evaluated(tmp_path, "origin.ts", script) == expected
