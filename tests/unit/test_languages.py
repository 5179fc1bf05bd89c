"""Language codes."""

import pytest

from jointnmt.errors import DataError
from jointnmt.text.languages import base_language, check_sides, language_of_file

CODES = {"de": "de", "zh-CN": "zh", "pt_BR": "pt", "zh-Hant-TW": "zh", "JA": "ja"}
OF_THREE_LETTERS = {"zho": "zh", "cmn": "zh", "jpn": "ja", "deu-AT": "de", "hsb": "hsb", "txt": "txt", "äöü": "äöü"}


@pytest.mark.parametrize(("code", "language"), [*CODES.items(), *OF_THREE_LETTERS.items()])
def test_region_and_script_are_cut_off_and_codes_are_short(code: str, language: str) -> None:
    assert base_language(code) == language


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2", ".GZ"])
def test_a_file_is_named_after_its_language(ending: str) -> None:
    assert language_of_file(f"data/test.2016.zh-CN{ending}") == "zh-CN"
    assert language_of_file(f"test{ending}") == ""
    check_sides(f"test.de{ending}", f"test.en{ending}", ("de-AT", "en"))
    with pytest.raises(DataError, match="Swap them"):
        check_sides(f"test.en{ending}", f"test.de{ending}", ("de", "en"))
