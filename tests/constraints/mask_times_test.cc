// Times of token masks at 128k tokens, of CPU, printed. bench/constraints/peers.py measures peers with the same schemas
// and ids.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/thread_time.h"
#include "constraints/constraint_harness.h"
#include "text/unicode.h"
#include "text/vocab_files.h"

namespace redline {
namespace {

double cpu_microseconds() { return thread_seconds() * 1e6; }

void report(const std::string& name, double compile_ms, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double t : times) sum += t;
  const auto at = [&](double share) {
    return times[std::min(times.size() - 1, static_cast<size_t>(share * static_cast<double>(times.size())))];
  };
  printf("%-18s redline    compile %8.2f ms  mask mean %8.2f us  p50 %8.2f  p99.9 %8.2f  n %zu\n", name.c_str(),
         compile_ms, sum / static_cast<double>(times.size()), at(0.5), at(0.999), times.size());
}

TEST(ConstraintMasks, DISABLED_TimesAt128kTokens) {
  const std::string folder = shared_path("tokenizer-llama3.2/");
  REDLINE_NEED_FILE(folder + "encoder.json");
  const auto encoder = nlohmann::json::parse(must_read(folder + "encoder.json"));
  size_t size = 0;
  for (const auto& [piece, id] : encoder.items()) size = std::max(size, id.get<size_t>() + 2);
  std::vector<std::string> texts(size);
  std::unordered_map<std::string, TokenId> ids;
  for (const auto& [piece, id] : encoder.items()) {
    std::string& text = texts[id.get<size_t>()];
    if (!unspell_bytes(piece, text)) text = piece;
    ids[text] = id.get<TokenId>();
  }
  const auto end = static_cast<TokenId>(size - 1);
  double begin = cpu_microseconds();
  const auto trie = TokenTrie::make(texts, std::span(&end, 1));
  printf("%zu tokens; their trie takes %.0f ms\n", size, (cpu_microseconds() - begin) / 1e3);

  nlohmann::json written = nlohmann::json::array();
  std::vector<double> all;
  for (const auto& test :
       nlohmann::json::parse(must_read(std::string(REDLINE_SOURCE_DIR) + "/bench/constraints/cases.json"))) {
    const std::string name = test["name"].get<std::string>(), text = test["schema"].get<std::string>();
    begin = cpu_microseconds();
    const auto constraint = Constraint::from_json_schema(text, trie);
    const double compile_ms = (cpu_microseconds() - begin) / 1e3;
    ASSERT_TRUE(constraint.ok()) << name << constraint.status().to_string();
    std::vector<double> times;
    nlohmann::json of_documents = nlohmann::json::array();
    for (const auto& entry : test["documents"]) {
      const std::string document = entry.get<std::string>();
      ConstraintState state(*constraint);
      TokenBits bits(trie->num_words());
      std::vector<TokenId> tokens;
      for (size_t at = 0; at < document.size();) {  // the longest token that the mask allows
        begin = cpu_microseconds();
        ASSERT_TRUE(state.fill_mask(bits).ok());
        times.push_back((cpu_microseconds() - begin));
        TokenId best = -1;
        for (size_t n = 1; n <= std::min<size_t>(24, document.size() - at); ++n)
          if (const auto found = ids.find(document.substr(at, n)); found != ids.end() && has_bit(bits, found->second))
            best = found->second;
        ASSERT_GE(best, 0) << name << " at " << document.substr(at);
        ASSERT_TRUE(state.accept(best).ok());
        tokens.push_back(best);
        at += texts[static_cast<size_t>(best)].size();
      }
      EXPECT_TRUE(state.is_complete());
      of_documents.push_back(tokens);
    }
    report(name, compile_ms, times);
    all.insert(all.end(), times.begin(), times.end());
    written.push_back({{"name", name}, {"schema", text}, {"ids", of_documents}});
  }
  report("all", 0, all);
  if (const char* path = std::getenv("REDLINE_MASK_IDS")) std::ofstream(path) << written;
}

}  // namespace
}  // namespace redline
