"""The examples of the page on incentives are true."""

import doctest

from tests.docs.pages import DOCS, HowTo


def test_the_examples_print_what_the_page_says():
    blocks = HowTo("explanation-incentives").blocks("pycon")
    assert len(blocks) == 2
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "page", str(DOCS), 0)
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test).failed == 0
