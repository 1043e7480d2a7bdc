// Reads any bytes as a file of prompts, as a list of token ids, and as a prompt with the notation of another program.
#include "cli/prompt_list.h"
#include "cli/token_list.h"
#include "diffusion/prompt_syntax.h"
#include "fuzz_file.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file("prompts");
  const std::string_view text = fuzz_text(data, size);
  file.write(text);
  if (const auto prompts = cli::read_prompts(file.path()); prompts.ok()) require(!prompts->empty());
  else require(!prompts.status().message().empty());
  if (const auto tokens = cli::parse_tokens(text); tokens.ok())
    for (const int32_t token : *tokens) require(token >= 0);
  else require(tokens.status().message().size() < 200);
  const std::string prompt(text);
  for (const std::string& warning : prompt_syntax_warnings(std::span(&prompt, 1))) require(!warning.empty());
  return 0;
}
