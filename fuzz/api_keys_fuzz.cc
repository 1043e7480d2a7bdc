// Reads any bytes as a file of API keys, and their first line as the header of a request with a key.
#include "fuzz_file.h"
#include "server/api_keys.h"

using namespace redline;
using namespace redline::server;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file("keys");
  const std::string_view text = fuzz_text(data, size);
  file.write(text);
  ApiKeys keys;
  const Status status = keys.read_file(file.path());
  require(status.ok() ? !keys.empty() : !status.message().empty());
  const size_t line = std::min(text.find('\n'), text.size());
  for (const char* name : {"authorization", "x-api-key", "api-key"}) {
    HttpRequest request;
    request.headers.emplace_back(name, std::string(text.substr(0, line)));
    const ApiKeys::Verdict verdict = keys.check(request);
    require(verdict.is_known == !verdict.name.empty() && verdict.retry_after_s >= 0);
  }
  require(!keys.check({}).is_known);  // a request without a key is refused
  return 0;
}
