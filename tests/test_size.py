"""scripts/size.py: what it reports of lines, modules and repeated code."""

from size import by_folder, repeats, with_one_importer

BODY = "".join(f"    value_{number} = {number} * x\n" for number in range(7))
ONE = f'"""One."""\n\nimport math\n\n\ndef one(x):\n    """What it does."""\n{BODY}    return 1\n'
OTHER = (
    f"import math\n\nY = 2\n\n\ndef other(\n    x,\n):\n{BODY}    return {{\n        1\n    }}\n"
)


def test_a_copied_body_is_noticed():
    assert repeats({"one.py": ONE, "other.py": OTHER}) == [("one.py:8", "other.py:9", 7)]
    spaced = OTHER.replace("value_3", "\n    # a word\n    value_3")
    assert repeats({"one.py": ONE, "other.py": spaced}) == [("one.py:8", "other.py:9", 7)]
    assert len(repeats({"twice.py": ONE + "\n\n" + OTHER})) == 1


def test_imports_signatures_and_fewer_lines_do_not_count():
    changed = OTHER.replace("value_2 =", "other_2 =")
    assert not repeats({"one.py": ONE, "other.py": changed})
    names = ", ".join(f"\n    name_{number}" for number in range(9))
    imports = f"from math import ({names}\n)\n\n\ndef f({names}\n):\n    return {{}}\n"
    assert not repeats({"one.py": imports, "other.py": imports})


def test_lines_and_modules_are_counted_by_folder():
    texts = {"a/one.py": "import math\n\nx = 1\n", "a/two.py": "y = 2\n", "top.py": ""}
    top, folder, whole = by_folder(texts)
    assert top.split()[:4] == ["(top)", "1", "modules", "0"]
    assert folder.split()[:4] == ["a", "2", "modules", "4"]
    assert whole.split()[1::2][:3] == ["3", "4", "1"]


def test_modules_with_one_importer_are_reported():
    texts = {
        "a/__init__.py": "from benign.a import one\n",
        "a/one.py": "import benign.b.two\n",
        "b/two.py": "",
        "b/three.py": "from benign.b.two import x\nfrom benign.a.one import y\n",
        "b/four.py": "from benign.b import three\n",
        "c/__init__.py": "from benign.b.four import z\n",
        "five.py": "",
    }
    assert with_one_importer(texts) == ["b/three.py: only b/four.py imports it"]
