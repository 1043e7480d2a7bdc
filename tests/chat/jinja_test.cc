// The template engine: what jinja2 gives for the same template and variables, with transformers' options.
// test_jinja_property.py compares many more with jinja2 itself.
#include "chat/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/jinja/json.h"
#include "chat/jinja/operations.h"

namespace redline::jinja {
namespace {

constexpr std::string_view kVariables = R"({"n": 3, "s": "Hello", "l": [3, 1, 2], "d": {"b": 1, "a": null, "items": 5},
  "uni": "Größe 😀", "people": [{"name": "Ann", "age": 31}, {"name": "bob"}], "yes": true,
  "big": 123456789012345678901})";

Result<std::string> render(std::string_view source, Limits limits = {}) {
  REDLINE_ASSIGN(const Template compiled, Template::compile(source));
  Evaluation e(limits);
  e.now = std::tm{};
  e.now->tm_year = 126;
  e.now->tm_mon = 2;
  e.now->tm_mday = 9;
  REDLINE_ASSIGN(const Value variables, parse_json_value(e, kVariables, "variables"));
  return compiled.render(e, *variables.as_dict());
}

std::string text(std::string_view source) {
  const auto result = render(source);
  return result.ok() ? *result : "error: " + result.status().message();
}

std::string error(std::string_view source) {
  const auto result = render(source);
  return result.ok() ? "text: " + *result : result.status().message();
}

TEST(Jinja, PrintsLikePython) {
  EXPECT_EQ(text("{{ none }} {{ yes }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }}"),
            "None True 1.0 1e+16 1e-05 0.30000000000000004");
  EXPECT_EQ(text("{{ [1, 'a', \"it's\", none, {'k': (1,)}] }}"), "[1, 'a', \"it's\", None, {'k': (1,)}]");
  EXPECT_EQ(text("{{ ['\\n\\x7f\\u00e9\\u200b'] }}"), "['\\n\\x7fé\\u200b']");
  EXPECT_EQ(text("{{ d }} {{ d.items() }} {{ range(3) }}"),
            "{'b': 1, 'a': None, 'items': 5} dict_items([('b', 1), ('a', None), ('items', 5)]) range(0, 3)");
  EXPECT_EQ(text("{{ big }} {{ big|tojson }} {{ big is integer }}"),
            "123456789012345678901 123456789012345678901 True");
  EXPECT_EQ(text("{{ missing }}|{{ [missing] }}|{{ missing|default('d') }}"), "|[Undefined]|d");
}

TEST(Jinja, ControlsWhiteSpace) {
  EXPECT_EQ(text("a\n  {% if yes %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(text("a  {%- if yes -%}  b  {%- endif %}  c"), "ab  c");
  EXPECT_EQ(text("  {%+ if yes +%}\n{% endif %}"), "  \n");
  EXPECT_EQ(text("a {#- gone -#} b"), "ab");
  EXPECT_EQ(text("{{ 1 -}}  \n {{- 2 }}"), "12");
  EXPECT_EQ(text("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(text("a\r\nb\r\n\n"), "a\nb\n");
}

TEST(Jinja, CalculatesLikePython) {
  EXPECT_EQ(text("{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -7.5 // 2 }}"),
            "3 -4 2 3.5 1024 0.5 -4.0");
  EXPECT_EQ(text("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ true + 1 }} {{ 'a' * 3 }} {{ [1] + [2] }}"),
            "True False 2 aaa [1, 2]");
  EXPECT_EQ(text("{{ 1 == 1.0 }} {{ '1' == 1 }} {{ true == 1 }} {{ [1] == [1.0] }} {{ missing == nothing }}"),
            "True False True True True");
  EXPECT_EQ(
      text("{{ 2.5|round }} {{ 3.5|round }} {{ 42.55|round(1, 'floor') }} {{ 25|round(-1) }} {{ 2.675|round(2) }}"),
      "2.0 4.0 42.5 20 2.67");
  EXPECT_EQ(text("{{ s or 'x' }} {{ '' or 'x' }} {{ s and n }} {{ not s }}"), "Hello x 3 False");
  EXPECT_EQ(text("{{ 'x' if n > 5 }}|{{ 'x' if n > 5 else 'y' }}"), "|y");
}

TEST(Jinja, CountsCharacters) {
  EXPECT_EQ(text("{{ uni|length }} {{ uni[1] }} {{ uni[-1] }} {{ uni[1:4] }} {{ uni[::-1] }} {{ uni.find('😀') }}"),
            "7 r 😀 röß 😀 eßörG 6");
  EXPECT_EQ(text("{{ uni.upper() }} {{ 'ΑΣ'.lower() }} {{ 'ﬁ'.upper() }}"), "GRÖSSE 😀 ας FI");
}

TEST(Jinja, PrefersAttributesToItems) {
  EXPECT_EQ(text("{{ d['items'] }} {{ d.b }} {{ d.nothing is defined }} {{ d.items is callable }}"), "5 1 False True");
  EXPECT_EQ(text("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}"), "b=1;a=None;items=5;");
  EXPECT_EQ(text("{{ people[0]['name'] }} {{ l.0 }} {{ people[5] is defined }}"), "Ann 3 False");
  EXPECT_EQ(text("{{ d.get('q', 7) }} {{ d.get('a') }} {{ d.get('q') is none }}"), "7 None True");
}

TEST(Jinja, ScopesAreThoseOfJinja) {
  EXPECT_EQ(text("{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(text("{% if yes %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(text("{% if not yes %}{% set n = 2 %}{% endif %}{{ n }}"), "3");
  EXPECT_EQ(text("{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}"), "6");
  EXPECT_EQ(text("{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}"), "5");
  EXPECT_EQ(text("{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}"), "13");
  EXPECT_EQ(text("{{ x }}{% set x = 5 %}{{ x }}"), "5");
}

TEST(Jinja, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(text("{% for i in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }} {% endfor %}"),
            "1TrueFalse3 2FalseFalse2 3FalseTrue1 ");
  EXPECT_EQ(text("{% for i in l if i > 1 %}{{ i }}/{{ loop.length }} {% endfor %}"), "3/2 2/2 ");
  EXPECT_EQ(text("{% for i in l %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }} {% endfor %}"), "<3<1 3<1<2 1<2< ");
  EXPECT_EQ(text("{% for i in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(text("{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}"), "3");
  EXPECT_EQ(text("{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}"), "32");
  EXPECT_EQ(text("{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}"), "3 7 ");
  EXPECT_EQ(text("{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 2) }} {% endfor %}"),
            "aTrue bTrue aFalse ");
}

TEST(Jinja, RecursiveLoops) {
  EXPECT_EQ(
      text("{% for i in [1, [2, [3]]] recursive %}{{ loop.depth }}:{% if i is iterable %}({{ loop(i) }}){% else %}"
           "{{ i }}{% endif %} {% endfor %}"),
      "1:1 1:(2:2 2:(3:3 ) ) ");
}

TEST(Jinja, MacrosTakeArguments) {
  EXPECT_EQ(text("{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(b=3) }}"), "11 12 3");
  EXPECT_EQ(text("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}"), "(1, 2){'k': 3}");
  EXPECT_EQ(text("{% macro m() %}<{{ caller(5) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}"), "<5>");
  EXPECT_EQ(text("{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"), "3210");
  EXPECT_EQ(text("{{ m.name if m is defined }}{% macro m(a) %}{% endmacro %}{{ m.name }}{{ m.arguments }}"), "m('a',)");
}

TEST(Jinja, BlocksGiveText) {
  EXPECT_EQ(text("{% set x %}a{{ n }}{% endset %}[{{ x }}]"), "[a3]");
  EXPECT_EQ(text("{% set x | upper %}abc{% endset %}{{ x }}"), "ABC");
  EXPECT_EQ(text("{% filter upper %}abc{{ s }}{% endfilter %}"), "ABCHELLO");
  EXPECT_EQ(text("{% generation %}x{% set y = 1 %}{% endgeneration %}{{ y is defined }}"), "xFalse");
}

TEST(Jinja, WritesJsonLikePython) {
  EXPECT_EQ(text("{{ d|tojson }} {{ uni|tojson }} {{ '<&>'|tojson }}"),
            "{\"b\": 1, \"a\": null, \"items\": 5} \"Größe 😀\" \"<&>\"");
  EXPECT_EQ(text("{{ [1, {'a': []}]|tojson(indent=2) }}"), "[\n  1,\n  {\n    \"a\": []\n  }\n]");
  EXPECT_EQ(text("{{ {'b': 1.0, 'a': 1e22}|tojson(sort_keys=true, separators=(',', ':')) }}"),
            "{\"a\":1e+22,\"b\":1.0}");
  EXPECT_EQ(text("{{ '😀é'|tojson(ensure_ascii=true) }}"), "\"\\ud83d\\ude00\\u00e9\"");
}

TEST(Jinja, SelectsAndSorts) {
  EXPECT_EQ(text("{{ people|selectattr('age')|map(attribute='name')|join(',') }}"), "Ann");
  EXPECT_EQ(text("{{ people|map(attribute='age', default=0)|list }}"), "[31, 0]");
  EXPECT_EQ(text("{{ ['b', 'A', 'c']|sort }} {{ ['b', 'A']|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }}"),
            "['A', 'b', 'c'] ['A', 'b'] [3, 2, 1]");
  EXPECT_EQ(text("{{ d|dictsort }} {{ l|max }} {{ l|sum }} {{ [1, 1, 2]|unique|list }}"),
            "[('a', None), ('b', 1), ('items', 5)] 3 6 [1, 2]");
  EXPECT_EQ(text("{% set g = l|map('string') %}{{ g|list }}{{ g|list }}"), "['3', '1', '2'][]");
}

TEST(Jinja, FormatsText) {
  EXPECT_EQ(text("{{ '%s %05.1f %d%% %r' % ('a', 3.14159, 5, 'q') }}"), "a 003.1 5% 'q'");
  EXPECT_EQ(text("{{ '{:>5}|{:<4}|{:^5}|{:,}|{{}}'.format('a', 1, 'x', 12345) }}"), "    a|1   |  x  |12,345|{}");
  EXPECT_EQ(text("{{ '{0[name]} {b!r}'.format(people[0], b='x') }}"), "Ann 'x'");
  EXPECT_EQ(text("{{ 'a\nb'|indent(2) }}"), "a\n  b");
  EXPECT_EQ(text("{{ strftime_now('%d %B %Y') }}"), "09 March 2026");
}

TEST(Jinja, MarkupEscapesWhatIsAdded) {
  EXPECT_EQ(text("{{ ('<b>'|safe) + '<i>' }} {{ '<b>'|safe ~ '<i>' }} {{ '<'|e }}"), "<b>&lt;i&gt; <b><i> &lt;");
}

TEST(Jinja, UndefinedValuesFailWhenTheyAreUsed) {
  EXPECT_EQ(error("{{ missing.name }}"), "line 1, column 11: 'missing' is undefined");
  EXPECT_EQ(error("\n  {{ d.q.r }}"), "line 2, column 9: 'dict object' has no attribute 'q'");
  EXPECT_EQ(error("{{ missing + 1 }}"), "line 1, column 12: 'missing' is undefined");
  EXPECT_EQ(error("{{ missing() }}"), "line 1, column 11: 'missing' is undefined");
  EXPECT_EQ(error("{{ l.append(1) }}"), "line 1, column 12: access to attribute 'append' of 'list' object is unsafe");
}

TEST(Jinja, ErrorsHaveAPlace) {
  EXPECT_EQ(error("a\n{{ 1 + }}"), "line 2, column 8: unexpected '}}'");
  EXPECT_EQ(error("{% if x %}"), "line 1, column 4: this block has no end: expected 'elif' or 'else' or 'endif'");
  EXPECT_EQ(error("{% nonsense %}"), "line 1, column 4: unknown tag 'nonsense'");
  EXPECT_EQ(error("{{ x|nonsense }}"), "line 1, column 6: no filter named 'nonsense'");
  EXPECT_EQ(error("{{ 'a }}"), "line 1, column 4: this string has no end");
  EXPECT_EQ(error("é{{ 1 $ 2 }}"), "line 1, column 7: unexpected character '$'");
  EXPECT_EQ(error("{{ raise_exception('No!') }}"), "line 1, column 19: No!");
  EXPECT_EQ(error("{% include 'a' %}"), "line 1, column 4: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(error("{% break %}"), "line 1, column 4: 'break' outside of a loop");
  EXPECT_EQ(error("{{ 1 + 'a' }}"), "line 1, column 6: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(error("{# "), "line 1, column 1: missing end of comment tag");
  EXPECT_EQ(Template::compile("\xff").status().message(), "line 1, column 1: the template is not UTF-8");
}

TEST(Jinja, AnUnknownFilterInABranchFailsWhenItIsUsed) {
  EXPECT_EQ(text("{% if yes %}a{% else %}{{ x|nonsense }}{% endif %}"), "a");
  EXPECT_EQ(error("{% if yes %}{{ s|nonsense }}{% endif %}"), "line 1, column 18: no filter named 'nonsense'");
}

TEST(Jinja, IsBounded) {
  const auto message = [](std::string_view source, Limits limits = {}) {
    const auto result = render(source, limits);
    return result.ok() ? std::string() : result.status().message();
  };
  EXPECT_THAT(message("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
              ::testing::HasSubstr("more than 10000000 steps"));
  EXPECT_THAT(message("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), ::testing::HasSubstr("recursion is deeper"));
  EXPECT_THAT(message("{{ 'a' * 1000000000 }}"), ::testing::HasSubstr("more than 67108864 bytes"));
  EXPECT_THAT(message("{% for i in range(100000) %}{{ 'abcdefghij' * 100 }}{% endfor %}"),
              ::testing::HasSubstr("bytes"));
  EXPECT_THAT(
      message("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
      ::testing::HasSubstr("recursion is deeper"));
  EXPECT_THAT(message("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}"),
              ::testing::HasSubstr("recursion is deeper"));
  EXPECT_THAT(
      message(
          "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
      ::testing::HasSubstr("steps"));
  EXPECT_THAT(message("{{ 9 ** 9 ** 9 }}"), ::testing::HasSubstr("64 bits"));
  EXPECT_THAT(message("{{ '%999999999d' % 1 }}"), ::testing::HasSubstr("bytes"));
  EXPECT_THAT(message("{{ 'abc'|center(999999999) }}"), ::testing::HasSubstr("bytes"));
  EXPECT_THAT(message("{{ range(1000000) }}"), ::testing::HasSubstr("more than 100000 items"));
  const auto nested = [&](const char* open, const char* close) {
    std::string source = "{{ ";
    for (int i = 0; i < 5000; ++i) source += open;
    source += "1";
    for (int i = 0; i < 5000; ++i) source += close;
    return message(source + " }}");
  };
  EXPECT_THAT(nested("(", ")"), ::testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(nested("[", "]"), ::testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(nested("-", ""), ::testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(nested("1 + ", ""), ::testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(nested("not ", ""), ::testing::HasSubstr("nested too deeply"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if yes %}";
  EXPECT_THAT(message(blocks), ::testing::HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace redline::jinja
