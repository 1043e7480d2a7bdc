// Reads any bytes as a batch file of requests and, after a zero byte, the file of answers from an earlier run.
#include "fuzz_file.h"
#include "server/batch_file.h"

using namespace redline;
using namespace redline::server;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFolder folder;
  const std::string_view text = fuzz_text(data, size);
  const size_t cut = std::min(text.find('\0'), text.size());
  const auto input = BatchInput::read(MappedFile::from_bytes("in.jsonl", text.substr(0, cut)));
  if (!input.ok()) {
    require(!input.status().message().empty());
    return 0;
  }
  for (const BatchLine& line : input->lines()) {
    require(line.number > 0 && line.text.size() <= cut);
    if (line.is_request()) require(!line.custom_id.empty());
  }
  folder.write("out.jsonl", text.substr(std::min(cut + 1, text.size())));
  const std::string path = folder.path() + "/out.jsonl";
  int64_t kept = -1;
  for (const bool drops_failed : {false, true, false}) {
    auto output = BatchOutput::open(path, *input, drops_failed);
    if (!output.ok()) {
      require(kept < 0 && !output.status().message().empty());
      return 0;
    }
    // The file was opened once, so it can be opened again. It has no more answers than before: failed ones are dropped.
    if (kept >= 0) require(output->kept() <= kept);
    kept = output->kept();
    for (const BatchLine& line : input->lines()) (void)output->has(line);
    require(output->append("{}").ok() && output->close().ok());
    const auto written = read_text_file(path);
    require(written.ok() && written->ends_with("{}\n"));
    folder.write("out.jsonl", std::string_view(*written).substr(0, written->size() - 3));
  }
  return 0;
}
