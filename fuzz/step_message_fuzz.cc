// Reads any bytes as a step: they are an error, or a message whose bytes are read back as the same message.
#include "fuzz_input.h"
#include "llm/step_message.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Every identity but 0 is that of an adapter.
  const auto find = [](uint64_t identity) {
    auto adapter = std::make_shared<Adapter>();
    adapter->identity = identity;
    return identity == 0 ? nullptr : std::shared_ptr<const Adapter>(adapter);
  };
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<StepMessage> message = StepMessage::from_bytes(bytes, find);
  if (!message.ok()) {
    require(!message.status().message().empty());
    return 0;
  }
  const Result<std::string> again = message->to_bytes();
  require(again.ok() && *again == bytes);
  return 0;
}
