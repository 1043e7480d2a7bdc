// The golden language models on the emulated device: against PyTorch transformers in float32, within the bound of
// rounded activations otherwise, and their schedules for a whole GPU by the static check.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "graph/adapter_sites.h"
#include "graph/adapters.h"
#include "graph/check_program.h"
#include "graph/ops/sample.h"
#include "models/registry.h"
#include "redline/device_notice.h"
#include "redline/engine_profile.h"
#include "runtime/runtime_resources.h"
#include "support/bundled.h"
#include "support/golden.h"
#include "support/sequences.h"
#include "support/tile_harness.h"

namespace redline::testing {
namespace {

std::vector<std::string> emulated_models() {
  std::vector<std::string> models = golden_models();
  // GGUF twins have the same graphs: their weights are read by code of its own, which golden_test.cc covers.
  std::erase_if(models, [](const std::string& model) { return model.find('/') != std::string::npos; });
  return models;
}

TextEngineOptions emulated(const std::vector<int32_t>& tokens, ComputeType dtype) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.device = test::test_device();
  options.context = static_cast<int64_t>(tokens.size()) + 8;
  options.max_sequences = 2;
  return options;
}

class EmulatedGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = load_golden(golden_folder(GetParam()));
    ASSERT_FALSE(golden_.tokens.empty());
  }
  std::string path() const { return golden_root() + "/" + GetParam(); }
  Difference compare(const std::vector<float>& logits, std::span<const double> conditions = {}) {
    EXPECT_EQ(logits.size(), golden_.logits.values.size());
    if (logits.size() != golden_.logits.values.size()) return {INFINITY, INFINITY, INFINITY, INFINITY};
    return difference(logits.data(), golden_.logits.values.data(), golden_.logits.dim(0), golden_.logits.dim(1),
                      conditions);
  }
  Golden golden_;
};

TEST_P(EmulatedGolden, MatchesTransformers) {
  // The bound of the float32 kernels of the CPU (golden_test.cc): both round to float32, in another order.
  const auto exact = open_engine(path(), emulated(golden_.tokens, ComputeType::kF32));
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->info().isa, device_name(choose_device(test::test_device()).value()));
  const std::vector<float> f32 = all_logits(*exact, golden_.tokens);
  const Difference in_f32 = compare(f32);
  EXPECT_LE(in_f32.all, 2e-5);
  EXPECT_LE(in_f32.worst_row, 2e-5);
  ASSERT_EQ(f32.size(), golden_.logits.values.size());
  // Every row is computed the same way, whatever shares its step.
  if (!depends_on_length(*exact)) {
    EXPECT_EQ(all_logits(*exact, golden_.tokens, {1, 5, 1}), f32);
  }

  // Under `auto`, activations of BF16 products are rounded to bfloat16, cached keys and values to float16: the bound of
  // docs/numerics.md for both, as on CPUs that multiply bfloat16.
  const auto engine = open_engine(path(), emulated(golden_.tokens, ComputeType::kAuto));
  ASSERT_TRUE(engine);
  AutoRounding rounding;
  rounding.bf16_products = (" " + engine->info().weight_types).find(" bf16 x") != std::string::npos;
  const double layers = std::max(2.0, static_cast<double>(engine->info().num_layers)), deep = std::sqrt(layers / 2);
  const auto conditions =
      row_conditions(f32.data(), golden_.logits.values.data(), golden_.logits.dim(0), golden_.logits.dim(1));
  const Difference d = compare(all_logits(*engine, golden_.tokens), conditions);
  EXPECT_LE(d.rms, deep * rounding.golden_rms());
  EXPECT_LE(d.all, deep * rounding.golden_largest());
}

/// Compiles a model for a GPU of 132 multiprocessors and checks the schedule of few and of many rows. `max_rank`: of
/// adapters; 0: the model has no room for any.
void check_schedule(const std::string& path, int64_t max_rank = 0) {
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  auto model = build_language_model(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  set_kv_format(model->graph, KvFormat::kF16);
  if (max_rank > 0) add_adapter_sites(model->graph, max_rank, [](const std::string&) { return true; });
  add_sample(model->graph);
  ASSERT_TRUE(run_passes(model->graph).ok());
  TileCompileOptions options;
  options.bounds[Symbol::kTokens] = 64;
  options.bounds[Symbol::kSequences] = 8;
  options.bounds[Symbol::kLogitRows] = 16;
  WorkerTeam team(1);
  const auto device = std::make_shared<OpenDevice>(emu::open_emulated_device({.multiprocessors = 132, .team = &team}));
  const auto program = compile_tiles(std::move(model->graph), options, device, team);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ASSERT_EQ(program->tasks.size(), 132u);
  for (const int64_t rows : {1, 16, 64}) {
    SymbolValues sizes;
    sizes[Symbol::kTokens] = rows;
    sizes[Symbol::kSequences] = 1;
    sizes[Symbol::kLogitRows] = std::min<int64_t>(rows, 16);
    const Status status = check_program(*program, sizes);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedGolden, ::testing::ValuesIn(emulated_models()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

struct ProgramRun {
  bool persistent = false, exact_f32 = false;
  KvFormat cache = KvFormat::kF32;
  emu::MachineOptions machine;
};

/// Logits of all tokens: the first in one step, then the others one by one.
std::vector<float> run_program(const Golden& golden, const std::string& path, const ProgramRun& run) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  auto model = build_language_model(*checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  set_kv_format(model->graph, run.cache);
  const DecoderConfig& config = model->config;
  const auto n = static_cast<int64_t>(golden.tokens.size()), vocab = golden.logits.dim(1);
  SymbolValues bounds;
  bounds[Symbol::kTokens] = bounds[Symbol::kLogitRows] = n;
  bounds[Symbol::kSequences] = 1;
  constexpr int kMultiprocessors = 3;
  auto compiled = test::TileCompiled::make(model->graph, bounds,
                                           {.exact_f32 = run.exact_f32,
                                            .multiprocessors = kMultiprocessors,
                                            .persistent = run.persistent,
                                            .machine = run.machine});
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.to_string();
  if (!compiled.status.ok()) return {};
  TileRunner& runner = *compiled.runner;
  constexpr int64_t kPages = 16;
  auto memory = runner.make_state_memory(std::vector<int64_t>(runner.states().groups.size(), kPages));
  test::TestSequences sequences(runner.states(), std::move(memory).value(), kPages, 1,
                                {{kMultiprocessors}, config.num_heads, config.num_kv_heads, config.head_dim, n, 1});
  std::vector<float> logits;
  for (int64_t at = 0, rows = 0; at < n; at += rows) {
    rows = at == 0 ? n - 2 : 1;
    for (int64_t i = 0; i < rows; ++i) {
      static_cast<int32_t*>(runner.host_input("tokens"))[i] = golden.tokens[static_cast<size_t>(at + i)];
      static_cast<int32_t*>(runner.host_input("positions"))[i] = static_cast<int32_t>(at + i);
      static_cast<int32_t*>(runner.host_input("logit_rows"))[i] = static_cast<int32_t>(i);
    }
    StepContext step = sequences.begin({rows});
    step.sizes[Symbol::kLogitRows] = rows;
    const Status status = runner.step(step);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return {};
    sequences.commit();
    const auto* out = static_cast<const float*>(runner.host_output("logits"));
    logits.insert(logits.end(), out, out + rows * vocab);
  }
  return logits;
}

// Dense, a mixture of experts, latent attention and recurrent layers: as one launch per step, in any order of the
// warps.
TEST(EmulatedPersistent, GivesTheBitsOfLaunches) {
  for (const char* model : {"llama_gqa", "mixtral", "gpt_oss", "deepseek_v3", "qwen3_next"}) {
    const Golden golden = load_golden(golden_folder(model));
    const std::string path = golden_root() + "/" + model;
    const std::vector<float> want = run_program(golden, path, {});
    ASSERT_FALSE(want.empty());
    for (const uint64_t seed : {0, 1, 2})
      EXPECT_EQ(run_program(golden, path, {.persistent = true, .machine = {.seed = seed}}), want) << model;
  }
}

// Every format of the cache, with products in float32: a rounding of keys and values of standard deviation h = 2.0e-4
// (float16) or 8 h (bfloat16) gives h sqrt(L (1 + 2 t^2)) of the logits, docs/numerics.md; 1.5 times that here, and of
// the largest error 3.6 times the rms, as AutoRounding has it. Windows, sinks, soft caps and latent attention.
TEST(EmulatedCache, EveryFormatGivesTheLogits) {
  for (const char* model : {"llama_gqa", "gemma2", "gpt_oss", "deepseek_v3"}) {
    const Golden golden = load_golden(golden_folder(model));
    const std::string path = golden_root() + "/" + model;
    for (const KvFormat cache : {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16}) {
      const std::vector<float> launches = run_program(golden, path, {.exact_f32 = true, .cache = cache});
      ASSERT_EQ(launches.size(), golden.logits.values.size()) << model;
      const double rms = cache == KvFormat::kF32 ? 2e-5 : 1.5 * 1.2e-3 * (cache == KvFormat::kF16 ? 1 : 8);
      const Difference d =
          difference(launches.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1), {});
      EXPECT_LE(d.rms, rms) << model << " format " << static_cast<int>(cache);
      EXPECT_LE(d.all, 3.6 * rms) << model << " format " << static_cast<int>(cache);
      // A rounding that is not there would be none of the format.
      if (cache != KvFormat::kF32) {
        EXPECT_GT(d.rms, 2e-5) << model << " format " << static_cast<int>(cache);
      }
      EXPECT_EQ(run_program(golden, path, {.persistent = true, .exact_f32 = true, .cache = cache}), launches) << model;
    }
  }
}

std::string tell(const std::string& device, ComputeType dtype, bool interpreter = false) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.device = device;
  options.use_interpreter = interpreter;
  options.max_batch_tokens = 64;
  const auto engine = open_engine(kTales, options);
  if (!engine) return "";
  GenerateRequest request;
  request.prompt = *engine->encode("Once upon a time");
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  const auto result = engine->generate(request);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? result->text : "";
}

TEST(EmulatedTales, TellsTheSameStory) {
  const std::string want = tell("cpu", ComputeType::kF32, true);
  EXPECT_FALSE(want.empty());
  EXPECT_EQ(tell(test::test_device(), ComputeType::kF32), want);
  EXPECT_EQ(tell(test::test_device(), ComputeType::kAuto), want);
}

// The first layers on the device, the others on the CPU, in float32, with the bound of either: several groups of
// states, recurrent ones, and a mixture of experts.
TEST(EmulatedGpuLayers, TheCpuRunsTheRest) {
  for (const char* model : {"llama_gqa", "gemma2", "qwen3_next"}) {
    const Golden golden = load_golden(golden_folder(model));
    TextEngineOptions options = emulated(golden.tokens, ComputeType::kF32);
    options.gpu_layers = 1;
    const auto engine = open_engine(golden_root() + "/" + model, options);
    ASSERT_TRUE(engine) << model;
    ASSERT_GT(engine->info().num_layers, 1);
    EXPECT_NE(engine->info().isa.find(", 1 layers; "), std::string::npos) << engine->info().isa;
    const std::vector<float> logits = all_logits(*engine, golden.tokens, {3, 1});
    ASSERT_EQ(logits.size(), golden.logits.values.size()) << model;
    const Difference d =
        difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1), {});
    EXPECT_LE(d.all, 2e-5) << model;
    EXPECT_LE(d.worst_row, 2e-5) << model;
  }
}

// Keys and values have their own format on each side: in float32 products, those of the device round as they do where
// it has all layers, and those of the CPU as they do on the CPU (EmulatedCache). The bound is that of the coarser one.
TEST(EmulatedGpuLayers, EachSideHasItsCacheFormat) {
  constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16};
  constexpr double kRounding[] = {0, 1.5 * 1.2e-3, 1.5 * 8 * 1.2e-3};
  for (const char* model : {"llama_gqa", "gemma2"}) {
    const Golden golden = load_golden(golden_folder(model));
    for (const KvFormat device : kFormats) {
      for (const KvFormat cpu : kFormats) {
        SCOPED_TRACE(::testing::Message()
                     << model << ", formats " << static_cast<int>(device) << " and " << static_cast<int>(cpu));
        const auto runtime = Runtime::open({.threads = 2}).value();
        resources_of(*runtime).kv_formats = {device, cpu};
        TextEngineOptions options = emulated(golden.tokens, ComputeType::kF32);
        options.runtime = runtime;
        options.threads = 0;
        options.gpu_layers = 1;
        const auto engine = open_engine(golden_root() + "/" + model, options);
        ASSERT_TRUE(engine);
        const std::vector<float> logits = all_logits(*engine, golden.tokens, {3, 1});
        ASSERT_EQ(logits.size(), golden.logits.values.size());
        const Difference d =
            difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1), {});
        const double rounding = std::max(kRounding[static_cast<int>(device)], kRounding[static_cast<int>(cpu)]);
        const double rms = std::max(2e-5, rounding);
        EXPECT_LE(d.rms, rms);
        EXPECT_LE(d.all, 3.6 * rms);
        if (rounding > 0) {
          EXPECT_GT(d.rms, 2e-5) << "a side does not round";
        }
        if (rounding == 0) continue;
        // The other side does not round as coarsely: with both formats the finer one, the error is another one.
        if (device != cpu) {
          resources_of(*runtime).kv_formats = {cpu, device};
          const auto swapped = open_engine(golden_root() + "/" + model, options);
          ASSERT_TRUE(swapped);
          EXPECT_NE(all_logits(*swapped, golden.tokens, {3, 1}), logits);
        }
      }
    }
  }
}

// By default the CPU's layers have the format that the CPU chooses for the model.
TEST(EmulatedGpuLayers, TheCpuChoosesTheFormatOfItsLayers) {
  const Golden golden = load_golden(golden_folder("llama_gqa"));
  const std::string path = golden_root() + "/llama_gqa";
  const auto logits_of = [&](const char* device, int64_t layers, std::optional<KvFormats> formats) {
    const auto runtime = Runtime::open({.threads = 2}).value();
    resources_of(*runtime).kv_formats = formats;
    TextEngineOptions options = emulated(golden.tokens, ComputeType::kAuto);
    options.device = device;
    options.runtime = runtime;
    options.threads = 0;
    options.gpu_layers = layers;
    const auto engine = open_engine(path, options);
    return engine ? all_logits(*engine, golden.tokens, {3, 1}) : std::vector<float>{};
  };
  const std::vector<float> mixed = logits_of(test::test_device().c_str(), 1, {});
  const std::vector<float> cpu = logits_of("cpu", -1, {});
  ASSERT_FALSE(mixed.empty());
  int equal = 0;
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    if (logits_of("cpu", -1, KvFormats{format, format}) != cpu) continue;
    ++equal;
    EXPECT_EQ(logits_of(test::test_device().c_str(), 1, KvFormats{KvFormat::kF16, format}), mixed);
  }
  EXPECT_EQ(equal, 1);
}

/// A runtime whose emulated device has a bounded memory.
struct BoundedDevice {
  BoundedDevice() {
    RuntimeOptions own;
    own.threads = 2;
    runtime = Runtime::open(own).value();
    device = std::make_shared<OpenDevice>(emu::open_emulated_device({.team = &resources().team()}));
    resources().set_device({DeviceKind::kEmulated}, device);
  }
  RuntimeResources& resources() const { return resources_of(*runtime); }
  TextEngineOptions options(const Golden& golden) const {
    TextEngineOptions o = emulated(golden.tokens, ComputeType::kF32);
    o.runtime = runtime;
    o.threads = 0;
    return o;
  }
  /// Returns the bytes that a model takes on the device.
  int64_t needed(const std::string& path, const Golden& golden) const {
    emu::set_memory_bytes(device->table(), 0);
    const auto engine = open_engine(path, options(golden));
    const auto memory = device->memory();
    return engine && memory.ok() ? memory->total - memory->free : 0;
  }
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<OpenDevice> device;
};

/// Logits of a prompt of more rows than a persistent step has and of rows after it, and how steps run.
std::pair<std::vector<float>, std::string> logits_by(StepMode mode, const std::string& model) {
  const Golden golden = load_golden(golden_folder(model));
  const auto runtime = Runtime::open({.threads = 2}).value();
  resources_of(*runtime).step_mode = mode;
  TextEngineOptions options = emulated(golden.tokens, ComputeType::kAuto);
  options.runtime = runtime;
  options.threads = 0;
  const auto engine = open_engine(golden_root() + "/" + model, options);
  if (!engine) return {};
  return {all_logits(*engine, golden.tokens, {std::min<int64_t>(std::ssize(golden.tokens) - 3, 20), 1}),
          engine->info().device_steps};
}

// An engine runs steps of few rows in one launch, and by the setting by launches: to the same bits.
TEST(EmulatedSteps, BothWaysGiveTheSameBits) {
  for (const char* model : {"llama_gqa", "gemma2", "mixtral", "gpt_oss", "deepseek_v3", "qwen3_next"}) {
    const auto [one_launch, one_text] = logits_by(StepMode::kAuto, model);
    const auto [launches, text] = logits_by(StepMode::kGraphs, model);
    ASSERT_FALSE(one_launch.empty()) << model;
    EXPECT_EQ(one_launch, launches) << model;
    if (test::test_device() == "emu") {
      EXPECT_EQ(one_text, "up to 16 rows in one launch, more by graphs of launches") << model;
    }
    EXPECT_EQ(text, "graphs of launches: REDLINE_DEVICE_STEPS=graphs") << model;
  }
}

// A hang in the middle of a text: the engine tells what waited for what, and goes on to the same logits.
TEST(EmulatedSteps, ATextGoesOnAfterAHang) {
  if (test::test_device() != "emu") GTEST_SKIP() << "no fault is planted on this device";
  for (const char* model : {"llama_gqa", "qwen3_next"}) {
    const Golden golden = load_golden(golden_folder(model));
    const std::vector<float> want = logits_by(StepMode::kGraphs, model).first;
    const BoundedDevice bounded;
    TextEngineOptions options = bounded.options(golden);
    options.dtype = ComputeType::kAuto;
    const auto engine = open_engine(golden_root() + "/" + model, options);
    ASSERT_TRUE(engine);
    std::vector<std::string> notices;
    on_device_notice([&](const std::string& text) { notices.push_back(text); });
    auto sequence = engine->new_sequence();
    ASSERT_TRUE(sequence.ok());
    std::vector<float> got;
    const size_t first = std::min<size_t>(golden.tokens.size() - 3, 20);
    for (size_t at = 0; at < golden.tokens.size();) {
      const size_t rows = at == 0 ? first : 1;
      if (at == first + 1)
        emu::set_machine_options(bounded.device->table(), {.fault = emu::Fault::kLostNotify, .fault_at = 5});
      const auto more =
          all_logits(**sequence, std::span(golden.tokens).subspan(at, rows), {static_cast<int64_t>(rows)});
      got.insert(got.end(), more.begin(), more.end());
      at += rows;
    }
    on_device_notice(nullptr);
    EXPECT_EQ(got, want) << model;
    ASSERT_EQ(notices.size(), 1u) << model;
    EXPECT_NE(notices[0].find("did not end within"), std::string::npos) << notices[0];
  }
}

// Where memory is short, the experts of some layers stay on the CPU, while the device runs the rest of these layers.
TEST(EmulatedGpuLayers, ExpertsStayOnTheCpu) {
  if (test::test_device() != "emu") GTEST_SKIP() << "the memory of this device is not set by tests";
  for (const char* model : {"mixtral", "deepseek_v3", "gpt_oss", "qwen2_moe"}) {
    const Golden golden = load_golden(golden_folder(model));
    const std::string path = golden_root() + "/" + model;
    const BoundedDevice bounded;
    bounded.resources().placement_speeds = {{1e12, 0}, {1e10, 0}};
    const int64_t needed = bounded.needed(path, golden);
    std::vector<std::string> notices;
    on_device_notice([&](const std::string& text) { notices.push_back(text); });
    // Takes the first size that leaves out experts only. Small models take much memory besides weights, so that no one
    // size suits all.
    std::unique_ptr<TextEngine> engine;
    for (const int64_t percent : {95, 90, 85, 80, 75}) {
      emu::set_memory_bytes(bounded.device->table(), needed * percent / 100);
      engine = nullptr;
      engine = open_engine(path, bounded.options(golden));
      ASSERT_TRUE(engine) << model;
      if (engine->info().isa.find(", experts of ") != std::string::npos) break;
    }
    on_device_notice(nullptr);
    EXPECT_NE(engine->info().isa.find(" layers, experts of "), std::string::npos) << engine->info().isa;
    ASSERT_FALSE(notices.empty());
    EXPECT_NE(notices.back().find(", without the experts of "), std::string::npos) << notices.back();
    // One row of each token crosses; of each expert that it has chosen, only a number.
    std::istringstream lines(profile_of(*engine).describe_program());
    int crossing = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("put") == std::string::npos || line.find(" cut.") == std::string::npos) continue;
      ++crossing;
      const bool is_of_pairs = line.find("tokens*") != std::string::npos;
      EXPECT_TRUE(!is_of_pairs || line.find(", ") == std::string::npos || line.ends_with(", 1]")) << line;
    }
    EXPECT_GT(crossing, 0);
    const std::vector<float> logits = all_logits(*engine, golden.tokens, {3, 1});
    ASSERT_EQ(logits.size(), golden.logits.values.size()) << model;
    const Difference d =
        difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1), {});
    EXPECT_LE(d.worst_row, 2e-5) << model;
  }
}

// A device with too little memory for all layers has as many as fit, and none is asked for; with gpu_layers the user
// has decided. A device that is slower than the CPU gets none.
TEST(EmulatedGpuLayers, AsManyAsFitInTheMemory) {
  if (test::test_device() != "emu") GTEST_SKIP() << "the memory of this device is not set by tests";
  const Golden golden = load_golden(golden_folder("llama_gqa"));
  const BoundedDevice bounded;
  TextEngineOptions options = bounded.options(golden);
  bounded.resources().placement_speeds = {{1e12, 1e-6}, {1e10, 1e-6}};
  emu::set_memory_bytes(bounded.device->table(), bounded.needed(golden_root() + "/llama_gqa", golden) * 9 / 10);
  std::vector<std::string> notices;
  on_device_notice([&](const std::string& text) { notices.push_back(text); });
  const auto engine = open_engine(golden_root() + "/llama_gqa", options);
  on_device_notice(nullptr);
  ASSERT_TRUE(engine);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("and the CPU the rest"), std::string::npos) << notices[0];
  EXPECT_NE(engine->info().isa.find(" layers; "), std::string::npos) << engine->info().isa;
  const std::vector<float> logits = all_logits(*engine, golden.tokens, {3, 1});
  ASSERT_EQ(logits.size(), golden.logits.values.size());
  const Difference d =
      difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1), {});
  EXPECT_LE(d.worst_row, 2e-5);
  bounded.resources().placement_speeds = {{1e10, 1e-6}, {1e12, 1e-6}};
  const auto on_cpu = open_engine(golden_root() + "/llama_gqa", options);
  ASSERT_TRUE(on_cpu);
  EXPECT_NE(on_cpu->info().isa.find(", 0 layers; "), std::string::npos) << on_cpu->info().isa;
  options.gpu_layers = engine->info().num_layers;
  const auto refused = TextEngine::open(golden_root() + "/llama_gqa", options);
  EXPECT_EQ(refused.status().code(), Code::out_of_device_memory);
  EXPECT_NE(refused.status().message().find("--gpu-layers N"), std::string::npos) << refused.status().message();
}

// Requests that the device samples, beside one with log probabilities, whose logits come to the host: the tokens are
// the same.
TEST(EmulatedTales, TheDeviceSamplesLikeTheHost) {
  TextEngineOptions options;
  options.threads = 2;
  options.device = test::test_device();
  options.context = 64;
  const auto engine = open_engine(kTales, options);
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = *engine->encode("Once upon a time");
  request.max_tokens = 6;
  request.ignore_stop_tokens = true;
  request.sampling.temperature = 1.5f;
  request.sampling.top_k = 200;
  request.sampling.top_p = 0.95f;
  request.sampling.min_p = 0.001f;
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.presence_penalty = 0.5f;
  request.sampling.seed = 11;
  GenerateRequest on_host = request, greedy = request;
  on_host.num_logprobs = 0;
  greedy.sampling = {};
  greedy.sampling.temperature = 0;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::shared_ptr<Generation>> running;
  for (const GenerateRequest& each : {request, on_host, greedy}) {
    auto generation = engine->submit(each);
    ASSERT_TRUE(generation.ok()) << generation.status().to_string();
    running.push_back(*generation);
  }
  for (const auto& generation : running) {
    const auto result = generation->wait();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    tokens.push_back(result->tokens);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(engine->decode(tokens[2], false).value(), ", there was a little girl");
}

TEST(EmulatedSchedules, AreOrdered) {
  check_schedule(kTales);
  check_schedule(kTales, 8);
  for (const std::string& model : emulated_models()) {
    SCOPED_TRACE(model);
    check_schedule(golden_root() + "/" + model);
    check_schedule(golden_root() + "/" + model, 8);
  }
}

// One batch has texts that PEFT generates in float32, and a text of the model without an adapter.
TEST(EmulatedTales, AdaptersOfOneBatch) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;
  options.device = test::test_device();
  options.context = 128;
  options.max_adapter_rank = 8;
  const auto engine = open_engine(kTales, options);
  ASSERT_TRUE(engine);
  const nlohmann::json adapters = read_json(kTales + "/reference/adapters.json")["adapters"];
  std::vector<GenerateRequest> requests;
  std::vector<std::vector<int32_t>> wanted;
  constexpr int64_t kTokens = 6;
  for (const auto& [name, texts] : adapters.items()) {
    const Status loaded = engine->load_adapter(name, kTales + "/adapters/" + name);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    GenerateRequest& request = requests.emplace_back();
    request.prompt = read_tokens(texts[1]["prompt_ids"]);
    request.max_tokens = kTokens;
    request.sampling.temperature = 0;
    request.ignore_stop_tokens = true;
    request.adapters = {{name, 1.0}};
    wanted.push_back(read_tokens(texts[1]["greedy_ids"]));
    wanted.back().resize(kTokens);
  }
  ASSERT_GE(requests.size(), 2u);
  GenerateRequest plain = requests[0];
  plain.adapters.clear();
  const auto alone = engine->generate(plain);
  ASSERT_TRUE(alone.ok());
  wanted.push_back(alone->tokens);
  EXPECT_GT(std::set(wanted.begin(), wanted.end()).size(), 3u);  // the texts do not begin alike
  requests.push_back(plain);
  std::vector<std::shared_ptr<Generation>> running;
  for (const GenerateRequest& request : requests) {
    auto generation = engine->submit(request);
    ASSERT_TRUE(generation.ok()) << generation.status().to_string();
    running.push_back(*generation);
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const auto result = running[i]->wait();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->tokens, wanted[i]) << i;
  }
}

TEST(EmulatedTales, WhatTheDeviceDoesNotHaveIsRefused) {
  TextEngineOptions options;
  options.device = "gpu";
  const auto unknown = TextEngine::open(kTales, options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), Code::invalid_argument);
  EXPECT_NE(unknown.status().message().find("cuda:N"), std::string::npos) << unknown.status().message();
}

}  // namespace
}  // namespace redline::testing
