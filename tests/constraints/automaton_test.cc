// The pushdown automaton against a chart parser, and masks against trying every token.
#include <map>
#include <random>

#include "constraints/constraint_harness.h"

namespace redline {
namespace {

// Reference: whether a nonterminal derives text[i, j), by iterating the definition to its fixpoint.
struct ReferenceGrammar {
  using Sequence = std::vector<int>;  // >= 0: nonterminal; < 0: the character -symbol
  std::vector<std::vector<Sequence>> rules;

  std::string gbnf() const {
    std::string text;
    for (size_t r = 0; r < rules.size(); ++r) {
      text += r == 0 ? "root ::=" : "r" + std::to_string(r) + " ::=";
      for (size_t a = 0; a < rules[r].size(); ++a) {
        if (a > 0) text += " |";
        if (rules[r][a].empty()) text += " \"\"";
        for (const int symbol : rules[r][a])
          text += symbol == 0  ? " root"
                  : symbol > 0 ? " r" + std::to_string(symbol)
                               : std::string(" \"") + static_cast<char>(-symbol) + "\"";
      }
      text += "\n";
    }
    return text;
  }

  bool matches(const std::string& text) const {
    const size_t n = text.size();
    std::vector<std::vector<std::vector<char>>> derives(
        rules.size(), std::vector<std::vector<char>>(n + 1, std::vector<char>(n + 1)));
    for (bool changes = true; changes;) {
      changes = false;
      for (size_t r = 0; r < rules.size(); ++r)
        for (const Sequence& s : rules[r])
          for (size_t i = 0; i <= n; ++i) {
            std::vector<char> ends(n + 1);
            ends[i] = 1;
            for (const int symbol : s) {
              std::vector<char> next(n + 1);
              for (size_t k = i; k <= n; ++k) {
                if (!ends[k]) continue;
                if (symbol < 0) {
                  if (k < n && text[k] == static_cast<char>(-symbol)) next[k + 1] = 1;
                } else {
                  for (size_t m = k; m <= n; ++m)
                    if (derives[static_cast<size_t>(symbol)][k][m]) next[m] = 1;
                }
              }
              ends = next;
            }
            for (size_t k = i; k <= n; ++k)
              if (ends[k] && !derives[r][i][k]) derives[r][i][k] = 1, changes = true;
          }
    }
    return derives[0][0][n];
  }
};

ReferenceGrammar random_grammar(std::mt19937& random) {
  ReferenceGrammar g;
  g.rules.resize(1 + random() % 4);
  for (auto& rule : g.rules) {
    rule.resize(1 + random() % 3);
    for (auto& sequence : rule) {
      sequence.resize(random() % 4);
      for (int& symbol : sequence)
        symbol = random() % 2 ? -static_cast<int>('a' + random() % 2) : static_cast<int>(random() % g.rules.size());
    }
  }
  return g;
}

std::vector<std::string> texts_up_to(size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < length) {
      texts.push_back(texts[i] + "a");
      texts.push_back(texts[i] + "b");
    }
  return texts;
}

TEST(ConstraintAutomaton, AgreesWithAChartParserOnRandomGrammars) {
  std::mt19937 random(1);
  const std::vector<std::string> texts = texts_up_to(6);
  int compiled = 0;
  for (int i = 0; i < 1500; ++i) {
    const ReferenceGrammar reference = random_grammar(random);
    const std::string text = reference.gbnf();
    const auto constraint = grammar(text);
    std::map<std::string, bool> want;
    bool any = false;
    for (const std::string& t : texts) any = (want[t] = reference.matches(t)) || any;
    if (!constraint.ok()) {
      EXPECT_FALSE(any) << text << constraint.status().to_string();
      continue;
    }
    ++compiled;
    for (const std::string& t : texts) ASSERT_EQ(matches(*constraint, t), want[t]) << text << "text \"" << t << '"';
    // Every allowed beginning has an end: tokens of one byte suffice.
    ConstraintState state(*constraint);
    for (const std::string& t : texts)
      if (want[t]) {
        ASSERT_TRUE(state.allows(t)) << text << t;
      }
  }
  EXPECT_GT(compiled, 800);
}

TEST(ConstraintAutomaton, ABeginningIsAllowedExactlyIfATextBeginsSo) {
  std::mt19937 random(2);
  const std::vector<std::string> texts = texts_up_to(8);
  for (int i = 0; i < 150; ++i) {
    const ReferenceGrammar reference = random_grammar(random);
    const auto constraint = grammar(reference.gbnf());
    if (!constraint.ok()) continue;
    std::map<std::string, bool> begins;
    for (const std::string& t : texts)
      if (reference.matches(t))
        for (size_t n = 0; n <= t.size(); ++n) begins[t.substr(0, n)] = true;
    ConstraintState state(*constraint);
    for (const std::string& t : texts)  // longer texts may begin so as well
      if (begins[t]) {
        ASSERT_TRUE(state.allows(t)) << reference.gbnf() << t;
      }
  }
}

TEST(ConstraintAutomaton, MasksAreThoseOfEveryTokenTried) {
  std::mt19937 random(3);
  const auto check = [&](const ConstraintResult& constraint, const std::string& name, int walks, size_t tokens) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    const TokenTrie& trie = (*constraint)->trie();
    for (int i = 0; i < walks; ++i)
      random_walk(*constraint, random, tokens, [&](ConstraintState& state, const TokenBits& bits) {
        for (TokenId id = 0; id < trie.vocab_size(); ++id) {
          const bool want = trie.is_end(id) ? state.is_complete() : state.allows(trie.text(id));
          ASSERT_EQ(has_bit(bits, id), want) << name << ": token " << id << " \"" << trie.text(id) << '"';
        }
      });
  };
  for (int i = 0; i < 120; ++i) {
    const std::string text = random_grammar(random).gbnf();
    // Some of them are as ambiguous as can be: a token of 50 letters takes more than a step may.
    const ConstraintLimits limits{.max_step_work = 1'000'000'000, .max_text_work = 1'000'000'000};
    const auto constraint = Constraint::from_grammar(text, small_trie(), limits);
    if (constraint.ok()) check(constraint, text, 3, 6);
  }
  for (const char* text :
       {"root ::= object\nobject ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= string \":\" value\n"
        "string ::= \"\\\"\" char* \"\\\"\"\nchar ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\nt]\n"
        "value ::= string | object | [0-9]+ | \"[\" (value (\",\" value)*)? \"]\"",
        "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= term \"*\" factor | factor\n"
        "factor ::= \"(\" expr \")\" | [a-z]",
        "root ::= .{3,300} \"x\"", "root ::= (\"a\"? \"b\"?){2,900}",
        "root ::= [^a]{0,5} \"aaaa\" [\xC3\xA9\xE2\x82\xAC]*",
        "root ::= x y\nx ::= \"\" | \"a\" x\ny ::= \"\" | y \"b\"", "root ::= (\"ab\" | \"a\" \"b\" \"c\"){40,90}"})
    check(grammar(text), text, 8, 30);
  for (const char* text :
       {"[a-c]{100,200}x?", "(ab|a)*", "^(\\d{2,}|[\\u00e9\\u20ac]+)$", "\"[^\"]{2,70}\"", "(a{2,3}){30,}"})
    check(regex(text), text, 8, 30);
  for (const char* text :
       {"{}", R"({"type":"string","maxLength":40})",
        R"({"type":"array","items":{"type":"string","maxLength":20},"maxItems":200})",
        R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"string"},"b":{"enum":["a","ab",)"
        R"("aaaa"]}},"required":["ab"]})",
        R"({"type":"string","minLength":60,"maxLength":130})", R"({"type":"string","pattern":"^(ab)+$","maxLength":5})",
        R"({"type":"string","pattern":"[0-9]","minLength":70,"maxLength":90})"})
    check(schema(text), text, 8, 30);
}

TEST(ConstraintState, RollbackGivesTheSameStates) {
  std::mt19937 random(4);
  for (const char* text : {"{}", R"({"type":"object","properties":{"a":{"type":"string","maxLength":30},"b":{}}})"}) {
    const auto constraint = schema(text);
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    const TokenTrie& trie = (*constraint)->trie();
    for (int i = 0; i < 30; ++i) {
      ConstraintState state(*constraint);
      std::vector<TokenBits> masks = {mask_of(state, trie)};
      for (int n = 0; n < 60; ++n) {
        if (masks.size() > 1 && random() % 3 == 0) {
          const size_t back = random() % std::min<size_t>(masks.size(), 8);
          ASSERT_TRUE(state.rollback(back).ok());
          masks.resize(masks.size() - back);
          ASSERT_EQ(mask_of(state, trie), masks.back());
          continue;
        }
        std::vector<TokenId> allowed;
        for (TokenId id = 0; id < trie.vocab_size(); ++id)
          if (has_bit(masks.back(), id)) allowed.push_back(id);
        if (allowed.empty()) break;
        ASSERT_TRUE(state.accept(allowed[random() % allowed.size()]).ok());
        masks.push_back(mask_of(state, trie));
      }
    }
  }
  const auto constraint = regex("a*");
  ConstraintState state(*constraint);
  EXPECT_FALSE(state.rollback(1).ok());
  EXPECT_FALSE(state.accept('b').ok());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(state.accept('a').ok());
  EXPECT_TRUE(state.rollback(256).ok());
  EXPECT_FALSE(state.rollback(257).ok());
}

TEST(ConstraintState, EndsAndForcedBytes) {
  const auto constraint = schema(R"({"type":"object","properties":{"name":{"const":"x"}},"required":["name"]})");
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  EXPECT_EQ(state.forced_bytes(), R"({"name":"x"})");
  EXPECT_FALSE(state.is_complete());
  ASSERT_TRUE(state.accept_text(state.forced_bytes()).ok());
  EXPECT_TRUE(state.is_complete());
  EXPECT_TRUE(state.is_finished());
  EXPECT_EQ(state.forced_bytes(), "");
  const TokenId end = static_cast<TokenId>(small_trie()->vocab_size()) - 1;
  const TokenBits bits = mask_of(state, *small_trie());
  for (TokenId id = 0; id <= end; ++id) EXPECT_EQ(has_bit(bits, id), id == end);
  EXPECT_TRUE(state.accept(end).ok());
  EXPECT_FALSE(state.accept('a').ok());

  const auto empty = regex("");
  ASSERT_TRUE(empty.ok());
  ConstraintState nothing(*empty);
  EXPECT_TRUE(nothing.is_finished());
}

TEST(ConstraintState, AFullCacheIsReplaced) {
  ConstraintLimits limits;
  limits.cache_bytes = 200'000;
  const auto constraint = Constraint::from_json_schema(R"({"type":"string","maxLength":100000})", small_trie(), limits);
  const auto ample = schema(R"({"type":"string","maxLength":100000})");
  ASSERT_TRUE(constraint.ok() && ample.ok());
  ConstraintState state(*constraint), other(*ample);
  ASSERT_TRUE(state.accept('"').ok() && other.accept('"').ok());
  for (int i = 0; i < 30'000; ++i) {
    ASSERT_TRUE(state.accept('a' + i % 3).ok());
    ASSERT_TRUE(other.accept('a' + i % 3).ok());
    if (i % 500 == 0) {
      ASSERT_EQ(mask_of(state, *small_trie()), mask_of(other, *small_trie()));
    }
    if (i % 700 == 0) {
      ASSERT_TRUE(state.rollback(100).ok() == other.rollback(100).ok());
    }
  }
}

TEST(ConstraintState, DeepNestingIsFollowed) {
  const auto constraint = grammar("root ::= \"[\" root? \"]\"");
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(state.accept('[').ok());
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_FALSE(state.is_complete());
    ASSERT_TRUE(state.accept(']').ok());
  }
  EXPECT_TRUE(state.is_finished());
}

TEST(Constraint, LimitsAreErrors) {
  ConstraintLimits limits;
  limits.max_states = 1000;
  const auto large = Constraint::from_grammar("root ::= \"" + std::string(5000, 'a') + "\"", small_trie(), limits);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.status().message().find("more than 1000 states"), std::string::npos);
  limits = {};
  limits.compile_ms = 0;
  std::string many = "root ::= r1\n";
  for (int i = 1; i < 2000; ++i) many += fmt::format("r{} ::= \"a\" r{} | \"b\"\n", i, i % 1999 + 1);
  EXPECT_FALSE(Constraint::from_grammar(many, small_trie(), limits).ok());
  EXPECT_TRUE(grammar(many).ok());
  EXPECT_TRUE(grammar("root ::= ((\"a\"{1000000000}){1000000000})?").ok());
  EXPECT_FALSE(grammar("root ::= \"a\" root").ok());  // no text is finite
  const auto ambiguous = grammar("root ::= root root root | root root | \"a\"");
  ASSERT_TRUE(ambiguous.ok());
  EXPECT_TRUE(matches(*ambiguous, std::string(60, 'a')));
}

}  // namespace
}  // namespace redline
