"""How large the house is, counted: so that a change can be asked whether it made the whole simpler.

    python benchmarks/size.py                 # of this checkout
    python benchmarks/size.py OTHER/CHECKOUT  # of another one, and the difference

Source lines have no blank ones, comments and docstrings. `isinstance` counts where it names a class of problems/, gym/
or learning/, for such a test should be a method; but for `Outside`, which is a state and no problem.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

HERE = Path(__file__).parents[1]
MOST_PARAMETERS = 8
LONGEST_FUNCTION, LONGEST_FILE = 40, 300
KINDS = ("problems", "gym", "learning")
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def source_lines(text, tree):
    """Lines with code in them."""
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SKIPPED
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            said = body[0].value
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                coded -= set(range(said.lineno, said.end_lineno + 1))
    return len(coded)


def parameters(function):
    """How many there are, but for self."""
    given = function.args
    return len([a for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg not in ("self", "cls")])


def names_in(node):
    """The names in an expression: `X`, `es.X`, `X | Y`, `(X, Y)`."""
    ours = [n for n in ast.walk(node) if not isinstance(n, ast.Attribute) or ast.unparse(n).startswith("es.")]
    return {getattr(n, "id", getattr(n, "attr", "")) for n in ours}


def counts(root):
    """Every count by its name."""
    trees = {}
    for path in sorted((root / "src/episafe").rglob("*.py")):
        text = path.read_text()
        trees[path] = text, ast.parse(text)
    kinds = {
        node.name
        for path, (_, tree) in trees.items()
        if path.relative_to(root / "src/episafe").parts[0] in KINDS
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    } - {"Outside"}
    nodes = [node for _, tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    tests = [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "isinstance"]
    longs = [f for f in functions if f.end_lineno - f.lineno + 1 > LONGEST_FUNCTION]
    return {
        "source lines": sum(source_lines(*one) for one in trees.values()),
        "lines": sum(text.count("\n") for text, _ in trees.values()),
        "modules": len(trees),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "functions and methods": len(functions),
        f"functions of more than {LONGEST_FUNCTION} lines": len(longs),
        f"functions of more than {MOST_PARAMETERS} parameters": sum(parameters(f) > MOST_PARAMETERS for f in functions),
        f"files of more than {LONGEST_FILE} lines": sum(text.count("\n") > LONGEST_FILE for text, _ in trees.values()),
        "isinstance on problem and model types": sum(bool(names_in(test.args[1]) & kinds) for test in tests),
    }


def main():
    now = counts(HERE)
    before = counts(Path(sys.argv[1])) if len(sys.argv) > 1 else {}
    for name, count in now.items():
        print(f"{count:7,}  {name}" + (f"  ({before[name]:,} there, {count - before[name]:+,})" if before else ""))


if __name__ == "__main__":
    main()
