// The time of one convolution: convolution_time FOLDER TYPE THREADS SECONDS ATTRS...
//
// FOLDER has x.bin, w.bin and b.bin: float32 as in tests/golden/make_convolution.py, whose attributes are ATTRS. TYPE,
// f32 or bf16, is that of the weight. Writes y.bin and prints the median and the smallest time in milliseconds, without
// the copy of x into the network. bench/convolution/against_torch.py calls it and compares y.bin.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "graph/ops/convolution.h"
#include "graph/pass.h"
#include "runtime/executable.h"

namespace {

using namespace redline;  // NOLINT(google-build-using-namespace): a program of one file

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop(path + ": cannot open");
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 10 || (argc - 10) % 8 != 0) stop("usage: convolution_time FOLDER TYPE THREADS SECONDS ATTRS...");
  const std::string folder = std::string(argv[1]) + "/", type = argv[2];
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const double seconds = std::strtod(argv[4], nullptr);
  ConvolutionAttrs attrs;
  attrs.is_transposed = number(5) != 0;
  attrs.groups = number(6);
  const int64_t batch = number(7), in = number(8), out = number(9);
  std::vector<Dim> sizes;
  Dim pixels = batch;
  std::vector<int64_t> shape =
      attrs.is_transposed ? std::vector<int64_t>{in, out / attrs.groups} : std::vector<int64_t>{out, in / attrs.groups};
  for (int i = 10; i < argc; i += 8) {
    sizes.emplace_back(number(i));
    pixels = pixels * Dim(number(i));
    shape.push_back(number(i + 1));
    attrs.axes.push_back({number(i + 1), number(i + 2), number(i + 3), number(i + 4), number(i + 5),
                          static_cast<ConvPadding>(number(i + 6)), number(i + 7)});
  }
  const std::vector<float> x = read_floats(folder + "x.bin"), w = read_floats(folder + "w.bin"),
                           b = read_floats(folder + "b.bin");
  std::vector<uint16_t> halves;
  for (const float v : w) halves.push_back(f32_to_bf16(v));
  WeightSource weight, bias;
  weight.view =
      type == "bf16" ? TensorView{DType::kBF16, shape, halves.data()} : TensorView{DType::kF32, shape, w.data()};
  bias.view = {DType::kF32, {out}, b.data()};

  GraphBuilder g("convolution");
  const Value input = g.input("x", DType::kF32, {pixels, in});
  g.output("y",
           convolution(g, {input, sizes}, batch, g.weight("w", weight), attrs, {.bias = g.weight("b", bias)}).value);
  auto graph = g.finish();
  if (!graph.ok()) stop(graph.status().to_string());
  if (const Status passed = run_passes(*graph); !passed.ok()) stop(passed.to_string());
  auto kernels = cpu_kernels();
  if (!kernels.ok()) stop(kernels.status().to_string());
  RuntimeResources runtime(static_cast<int>(number(3)), **kernels);
  ExecutableOptions options;
  auto network = Executable::make(std::move(*graph), options, runtime);
  if (!network.ok()) stop(network.status().to_string());

  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 5 || Clock::now() - begin < std::chrono::duration<double>(seconds)) {
    std::copy(x.begin(), x.end(), network->input("x"));
    const auto from = Clock::now();
    if (const Status ran = network->run(options.bounds); !ran.ok()) stop(ran.to_string());
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - from).count());
  }
  std::ofstream(folder + "y.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(network->output("y")),
             num_elements(network->outputs()[0].shape).constant() * static_cast<int64_t>(sizeof(float)));
  std::sort(times.begin(), times.end());
  std::printf("%.4f %.4f\n", times[times.size() / 2], times[0]);
  return 0;
}
