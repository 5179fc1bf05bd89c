"""Language codes."""

import pytest

from jointnmt.text.languages import base_language


@pytest.mark.parametrize(
    ("code", "language"), [("de", "de"), ("zh-CN", "zh"), ("pt_BR", "pt"), ("zh-Hant-TW", "zh"), ("JA", "ja")]
)
def test_region_and_script_are_cut_off(code: str, language: str) -> None:
    assert base_language(code) == language
