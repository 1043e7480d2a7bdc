// Reads any bytes as a model's name on the Hub, and as the Hub's description of a revision, from whose files a few are
// selected.
#include "fuzz_input.h"
#include "hub/revision.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const HubName name{"owner/name", "main", ""};
  if (const auto parsed = parse_hub_name(text); parsed.ok()) {
    require(is_hub_name(text) && is_safe_path(parsed->revision));
    const auto again = parse_hub_name(parsed->text());
    require(again.ok() && again->repository == parsed->repository && again->revision == parsed->revision);
  } else {
    require(!parsed.status().message().empty() && parsed.status().message().size() < 2000);
  }
  const auto revision = read_revision(text, name, "http://x");
  if (!revision.ok()) {
    require(!revision.status().message().empty());
    return 0;
  }
  for (const HubFile& file : revision->files) require(is_safe_path(file.path));
  for (const char* selection : {"", "Q4_K_M", "model.gguf"}) {
    const auto choice = choose_files(revision->files, selection);
    if (choice.ok()) require(!choice->files.empty() && choice->files.size() <= revision->files.size());
    else require(!choice.status().message().empty());
  }
  return 0;
}
