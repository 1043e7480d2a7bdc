// Compiles any bytes as a grammar, a regular expression or a JSON Schema (the first byte chooses). The result must be a
// constraint or an error, in bounded time and memory, and masks must agree with the bytes of each token.
#include "constraint_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TokenTrie> trie = fuzz_trie();
  if (size == 0) return 0;
  const ConstraintLimits limits = fuzz_limits();
  const std::string_view text = fuzz_text(data + 1, size - 1);
  const auto constraint = data[0] % 3 == 0   ? Constraint::from_grammar(text, trie, limits)
                          : data[0] % 3 == 1 ? Constraint::from_regex(text, trie, limits)
                                             : Constraint::from_json_schema(text, trie, limits);
  if (!constraint.ok()) {
    require(!constraint.status().message().empty());
    return 0;
  }
  ConstraintState state(*constraint);
  TokenBits bits(trie->num_words());
  uint32_t random = static_cast<uint32_t>(size);
  for (int n = 0; n < 20 && !state.is_finished(); ++n) {
    if (!state.fill_mask(bits).ok()) break;
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < trie->vocab_size(); ++id) {
      if (!has_bit(bits, id)) continue;
      allowed.push_back(id);
    }
    require(!allowed.empty());
    random = random * 1664525 + 1013904223;
    const TokenId id = allowed[(random >> 8) % allowed.size()];
    const Status status = state.accept(id);
    require(status.ok() || status.message().find("ambiguous") != std::string_view::npos);
    if (!status.ok()) break;
    if (n % 5 == 4) require(state.rollback(2).ok());
  }
  (void)state.forced_bytes();
  return 0;
}
