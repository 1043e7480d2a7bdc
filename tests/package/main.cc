#include <redline/text.h>

#include <cstdio>

int main() {
  const auto engine = redline::TextEngine::open("no/such/model");
  std::puts(engine.status().to_string().c_str());
  return engine.status().code() == redline::Code::not_found ? 0 : 1;
}
