"""HTML to readable text, in bounded time for any page."""

from __future__ import annotations

import pytest

from tools.web.html_text import Page, readable

HERE = "https://site.example/dir/page"


def text_of(html: str) -> str:
    return readable(html, HERE, 30).text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one<p>two", "one\n\ntwo"),
        ("a\n  b\t c", "a b c"),
        ("a<br>b", "a\nb"),
        ("<b>bold</b>er", "bolder"),
        ("<h1>Top</h1><h3>Sub</h3>x", "# Top\n\n### Sub\n\nx"),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<ul><li><p>a</p><li></li><li>b</ul>", "- a\n\n- b"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n\n- b\n\n- c"),
        ("<pre>\n  x\n    y</pre>z", "\n  x\n    y\n\nz".strip("\n")),
        ("<table><tr><th>A<th>B<tr><td>1</td><td>2</td></tr></table>end", "A | B\n1 | 2\n\nend"),
        ("<table><tr><td></td><td>2<tr><td><td></table>end", "2\n\nend"),
        ("&lt;b&gt; &amp; &eacute; &#128512; &nbsp;x", "<b> & é 😀 x"),
        (
            '<a href="/a?x=1&amp;y">one</a>, <a href=b>two</a>',
            "[one](https://site.example/a?x=1&y), [two](https://site.example/dir/b)",
        ),
        ('<base href="https://other.example/q/"><a href=b>two</a>', "[two](https://other.example/q/b)"),
        ('see <a href="//cdn.example/x"> it </a>!', "see [it](https://cdn.example/x) !"),
        ('<a href="javascript:x()">js</a> <a href="#top">up</a> <a>none</a> <a href="data:,x">d</a>', "js up none d"),
        ('<a href="x"><img src=y alt="orders"></a>z', "z"),
        ('<a href="http://[bad">x</a>', "[x](https://site.example/dir/page)"),
        (f'<a href="{"x" * 400}">long</a>', "long"),
        ("<!-- <p>secret --> shown <!DOCTYPE html>", "shown"),
        ("<script>secret()</script><style>p{}</style><template>t</template><noscript>n</noscript>x", "x"),
        ("<textarea>t</textarea><svg><title>s</title><text>v</text></svg><select><option>o</select>x", "x"),
        ("<iframe>f</iframe><object>o</object><video>v</video>x", "x"),
        ("<title> The\n title </title>x", "x"),
        ("<div><p>unclosed <i>tags</div>after", "unclosed tags\n\nafter"),
        ("</p></div></nothing>x", "x"),
        ("<p>cut off <a hre", "cut off"),
        ("", ""),
    ],
)
def test_what_a_page_says(html: str, text: str) -> None:
    assert text_of(html) == text


@pytest.mark.parametrize(
    "attribute",
    [
        "hidden",
        "HIDDEN=until-found",
        'aria-hidden="true"',
        "aria-hidden=' TRUE '",
        "style='display:none'",
        "style='color:red; DISPLAY : NONE !important'",
        "style='visibility:hidden'",
        "style='opacity:0'",
        "style='opacity:0.0;x:y'",
        "style='font-size:0'",
        "style='font-size: 0px'",
        "style='font-size:.0em'",
        "style='height:0;overflow:hidden'",
        "style='max-height:0px'",
        "style='position:absolute;left:-9999px'",
        "style='text-indent:-9999em'",
        "style='transform:scale(0)'",
        "style='clip-path:inset(50%)'",
        "style='clip:rect(0,0,0,0)'",
    ],
)
def test_what_an_element_hides_is_left_out_and_counted(attribute: str) -> None:
    page = readable(f"a<div {attribute}>obey <p>me <b>now</b></div>b<p {attribute}>obey<p>c", HERE, 30)
    assert page == Page("", "a\n\nb\n\nc", hidden=len("obeymenowobey"))


@pytest.mark.parametrize(
    "attribute",
    [
        "style='opacity:0.5'",
        "style='font-size:0.9em'",
        "style='left:-5px'",
        "style='width:auto;height:;max-width:05px'",
        "style='width:0.5em;height:.05px;opacity:01'",
        "aria-hidden=false",
        "class=hidden",
        "style=''",
    ],
)
def test_what_is_shown_stays(attribute: str) -> None:
    assert text_of(f"<div {attribute}>shown</div>") == "shown"


def test_a_page_has_a_title() -> None:
    page = readable("<svg><title>icon</title></svg><title>A &amp; B\n</title><title>C</title>x", HERE, 30)
    assert page == Page("A & B", "x")


HOSTILE = (
    "<div>", "<a>", "<a ", "<", " <", "<a href='", "<!--", "<!---->", "<!>", "</a ", "</p>", "<p>", "<b hidden>",
    "<svg>", "<table><tr><td>", "<li>", "<script>", "<script><!--", "<title>", "<textarea></", "&",
    "<p x=&amp;>", "<a x=' y='>", "<ul><li>", "<a href=x>", "\0", "<![CDATA[", "<?", "<plaintext>",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_html_ends_in_time(unit: str) -> None:
    # A fifth of a second for five million characters: what goes on longer is one tag or one text.
    page = readable("before" + unit * (5_000_000 // len(unit)), HERE, 0.2)
    assert page.cut
    assert not page.text or page.text.startswith("before")


def test_a_page_that_is_too_long_is_read_as_far_as_it_goes() -> None:
    page = readable("<p>x" * 1_000_000, HERE, 0.0)
    assert page.cut and page.text.startswith("x\n\nx")


def test_elements_that_are_opened_again_for_ever_take_no_memory() -> None:
    again = "".join(f"<b a={number}>" for number in range(3_000))
    assert text_of(f"<p>{again}{'<p>x' * 3_000}") == "\n\n".join("x" * 3_000)
