// Compiles any bytes as a grammar in Lark's notation, also within a JSON string. The result must be a constraint or an
// error, in bounded time and memory. A random walk follows the masks of the grammar within a string: some token must
// always be allowed, and a complete text must be a JSON string whose contents the plain grammar accepts.
#include <nlohmann/json.hpp>

#include "constraint_fuzz.h"
#include "constraints/lark.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TokenTrie> trie = fuzz_trie();
  const ConstraintLimits limits = fuzz_limits();
  CompileDeadline deadline(limits);
  const Result<Grammar> grammar = parse_lark(fuzz_text(data, size), deadline);
  if (!grammar.ok()) {
    require(!grammar.status().message().empty());
    return 0;
  }
  Grammar outer;
  outer.root = outer.add_rule("root");
  outer.define(outer.root, outer.sequence({outer.bytes("\""), outer.embed(*grammar, true), outer.bytes("\"")}));
  const auto plain = Constraint::compile(*grammar, trie, limits, deadline);
  const auto spelled = Constraint::compile(outer, trie, limits, deadline);
  if (!plain.ok() || !spelled.ok()) return 0;
  ConstraintState state(*spelled);
  TokenBits bits(trie->num_words());
  uint32_t random = static_cast<uint32_t>(size);
  std::string text;
  for (int n = 0; n < 40 && !state.is_finished(); ++n) {
    if (!state.fill_mask(bits).ok()) return 0;
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < trie->vocab_size(); ++id)
      if (has_bit(bits, id)) allowed.push_back(id);
    require(!allowed.empty());
    random = random * 1664525 + 1013904223;
    const TokenId id = allowed[(random >> 8) % allowed.size()];
    if (!state.accept(id).ok()) return 0;
    text += trie->text(id);
  }
  if (!state.is_complete()) return 0;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  require(json.is_string());
  ConstraintState check(*plain);
  const Status status = check.accept_text(json.get_ref<const std::string&>());
  require((status.ok() && check.is_complete()) || status.message().find("ambiguous") != std::string_view::npos);
  return 0;
}
