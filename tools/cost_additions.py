"""One addition of each kind, for check_costs.py: functions that write it into a copy of the repository, and what it may cost.

over 600 lines: the table at the end names every function, and most of the lines are the sources that they write.
"""

TEST = """#include <gtest/gtest.h>

#include "{header}"

namespace redline {{
namespace {{

TEST({suite}, IsInTheRegistry) {{ {body} }}

}}  // namespace
}}  // namespace redline
"""


def add_text_family(tree):
    tree.write("src/models/text/starling.cc", """// Starling: Llama's layers with biases on queries, keys and values.
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  return build_llama_decoder("starling", std::move(c), checkpoint, outputs, {.qkv = true});
}

}  // namespace

extern const ModelFamily kStarlingFamily = {
    .model_type = "starling",
    .architecture = "StarlingForCausalLM",
    .gguf = {.architecture = "starling", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer},
    .build = build,
};

}  // namespace redline
""")
    tree.add_row("src/models/registry.cc", "ModelFamily", "kFamilies", "kStarlingFamily")
    tree.write("tests/models/starling_test.cc", TEST.format(
        header="models/registry.h", suite="Starling", body='EXPECT_TRUE(find_gguf_family("starling").ok());'))


def add_diffusion_family(tree):
    tree.write("src/models/image/starling.cc", """// Starling: a pipeline of one text encoder, and a denoiser that adds nothing to its latents.
#include "models/blocks/dit_blocks.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

Result<DenoiserModel> build(const Checkpoint& checkpoint, BlockSplit /*blocks*/) {
  DenoiserModel model;
  model.family = "starling";
  model.in_channels = model.out_channels = model.latent_channels = 4;
  if (checkpoint.tensors.empty()) return invalid_argument("{}: there are no tensors", checkpoint.path);
  return model;
}

Result<PromptConditions> condition(const PromptEncoders& encoders, const DenoiserModel& /*model*/,
                                   std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * encoder, encoders.find("text_encoder"));
  REDLINE_ASSIGN(EncodedText text, encoder->encode(prompts, text_tokens, /*mask_padding=*/false));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  c.add_warnings(text);
  c.values["text"] = std::move(text.hidden);
  return c;
}

constexpr std::string_view kDenoiserClasses[] = {"StarlingTransformer2DModel"};
constexpr std::string_view kPipelineClasses[] = {"StarlingPipeline"};

}  // namespace

extern const DenoiserRow kStarlingDenoiser = {
    .class_names = kDenoiserClasses,
    .build = build,
};

extern const PipelineRow kStarlingPipeline = {
    .class_names = kPipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "StarlingTransformer2DModel",
    .condition = condition,
    .side = 1024,
    .num_inference_steps = 20,
    .guidance_scale = 4,
    .max_sequence_length = 256,
};

}  // namespace redline
""")
    registry = "src/models/image/image_registry.cc"
    tree.add_row(registry, "DenoiserRow", "kDenoisers", "kStarlingDenoiser")
    tree.add_row(registry, "PipelineRow", "kPipelines", "kStarlingPipeline")
    tree.write("tests/models/starling_test.cc", TEST.format(
        header="models/image/image_registry.h", suite="Starling",
        body='EXPECT_TRUE(find_pipeline("StarlingPipeline").ok());'))


def add_video_family(tree):
    """Rows are tokens of all frames; the autoencoder doubles the frames after the first, and both sides."""
    tree.write("src/models/video/starling.cc", """// Starling: a pipeline of video, whose denoiser adds nothing to its latents.
#include "graph/ops/convolution.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

constexpr int64_t kChannels = 4;

Result<DenoiserModel> build(const Checkpoint& checkpoint, BlockSplit /*blocks*/) {
  DenoiserModel model;
  model.family = "starling";
  model.in_channels = model.out_channels = model.latent_channels = kChannels;
  model.rope_table = [](int64_t text_tokens, const TokenGrid& tokens) {
    return std::vector<float>(static_cast<size_t>(text_tokens + tokens.frames * tokens.height * tokens.width));
  };
  if (checkpoint.tensors.empty()) return invalid_argument("{}: there are no tensors", checkpoint.path);
  return model;
}

Result<AutoencoderModel> build_autoencoder(const Checkpoint& checkpoint) {
  const auto weight = checkpoint.tensors.find("decoder.weight");
  if (weight == checkpoint.tensors.end()) return invalid_argument("{}: decoder.weight is missing", checkpoint.path);
  AutoencoderModel model;
  model.latent_channels = kChannels;
  model.scale = model.temporal_scale = 2;
  model.scale_all(1, 0);
  model.grid = Grid({"frames", "height", "width"});
  const Dim batch(Symbol::kBatch), frames = model.grid.extent(0), height = model.grid.extent(1), width = model.grid.extent(2);
  GraphBuilder g("starling");
  const Value latents = g.input("latents", DType::kF32, {batch * frames * height * width, kChannels});
  const FeatureGrid clip = convolution(g, {latents, {frames, height, width}}, batch, g.weight(weight->first, weight->second),
                                       {.axes = {{}, {}, {}}, .upsample = true}, {},
                                       {frames * Dim(2) + Dim(-1), height * Dim(2), width * Dim(2)});
  g.output("image", clip.value);
  REDLINE_ASSIGN(model.decode, g.finish());
  return model;
}

Result<PromptConditions> condition(const PromptEncoders& encoders, const DenoiserModel& /*model*/,
                                   std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * encoder, encoders.find("text_encoder"));
  REDLINE_ASSIGN(EncodedText text, encoder->encode(prompts, text_tokens, /*mask_padding=*/true));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  c.values["text"] = std::move(text.hidden);
  return c;
}

constexpr std::string_view kDenoiserClasses[] = {"StarlingTransformer3DModel"};
constexpr std::string_view kPipelineClasses[] = {"StarlingPipeline"};

}  // namespace

extern const DenoiserRow kStarlingDenoiser = {.class_names = kDenoiserClasses, .build = build};

extern const AutoencoderRow kStarlingAutoencoder = {.class_name = "AutoencoderKLStarling", .build = build_autoencoder};

extern const PipelineRow kStarlingPipeline = {
    .class_names = kPipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "StarlingTransformer3DModel",
    .condition = condition,
    .side = 480,
    .num_inference_steps = 20,
    .guidance_scale = 5,
    .max_sequence_length = 512,
    .num_frames = 81,
    .frame_rate = 16,
};

}  // namespace redline
""")
    registry = "src/models/image/image_registry.cc"
    tree.add_row(registry, "DenoiserRow", "kDenoisers", "kStarlingDenoiser")
    tree.add_row(registry, "AutoencoderRow", "kAutoencoders", "kStarlingAutoencoder")
    tree.add_row(registry, "PipelineRow", "kPipelines", "kStarlingPipeline")
    tree.write("tests/models/starling_test.cc", TEST.format(
        header="models/image/image_registry.h", suite="Starling",
        body='EXPECT_TRUE(find_pipeline("StarlingPipeline").ok());'))


def add_solver(tree):
    tree.write("src/diffusion/solvers/starling.cc", """// Starling: one Euler step to the image itself, for a test of costs.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_exploding.h"

namespace redline {
namespace {

class Starling final : public VarianceExploding {
 public:
  explicit Starling(SolverFields& fields) : VarianceExploding(fields, {"epsilon"}) {}

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_ASSIGN(Layout layout, spaced(plan));
    layout.sigmas.push_back(0);
    set_init_noise(layout);
    return layout;
  }
  bool adds_model_output() const override { return true; }
  void advance(const Step& s, NoiseSource&) override {
    const float change = layout().sigmas[s.index + 1] - layout().sigmas[s.index];
    for (size_t i = 0; i < s.x.size(); ++i) s.x[i] += change * s.output[i];
  }
};

}  // namespace

extern const SolverRow kStarlingSolver = {
    .name = "starling",
    .class_name = "StarlingScheduler",
    .web_ui_name = "Starling",
    .comfyui_name = "starling",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Starling>,
};

}  // namespace redline
""")
    tree.write("tests/diffusion/starling_solver_test.cc", TEST.format(
        header="diffusion/solver.h", suite="Starling",
        body='EXPECT_TRUE(Solver::make({{"_class_name", "StarlingScheduler"}}).ok());'))


def add_option_row(tree, table, row):
    """Appends a row to a table of options."""
    tree.replace(f"include/redline/{table}.inc", r"\n\n#undef REDLINE_OPTION\n", lambda match: f"\n{row}{match[0]}")


def add_engine_option(tree):
    """A limit that the engine checks. The row is all that C, Python, the command line and their documents need."""
    add_option_row(tree, "text_engine_options", """REDLINE_OPTION(INT64, starling, 0, "number of starlings, for a test of costs",
               .unset = "as many as there are", .flag = "starling", .symbol = "N", .min = 0, .max = 1000)""")
    tree.replace("src/llm/stepper.cc", r"(Status Stepper::set_limits\(const TextEngineOptions& options\) \{\n)", r"""\1  if (options.starling < 0)
    return invalid_argument("starling {} must not be negative", options.starling);
""")
    tree.write("tests/llm/starling_test.cc", """#include <gtest/gtest.h>

#include "redline/text.h"

namespace redline {
namespace {

TEST(Starling, MustNotBeNegative) {
  TextEngineOptions options;
  options.starling = -1;
  const auto engine = TextEngine::open(REDLINE_SOURCE_DIR "/assets/redline-tales", options);
  EXPECT_EQ(engine.status().message(), "starling -1 must not be negative");
}

}  // namespace
}  // namespace redline
""")


def add_sampler(tree):
    """Keeps tokens at least half as likely as the best, where the new member of SamplingOptions says so."""
    add_option_row(tree, "generate_options", 'REDLINE_OPTION(FLOAT, starling, 0, "drop tokens less likely than starling / 2 times the most likely one; 0: off")')
    tree.write("src/llm/samplers/starling.cc", """// Starling: tokens at least half as likely as the most likely one, for a test of costs.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Starling final : public SamplerStep {
 public:
  explicit Starling(const SamplerContext& c) : share_(c.options.starling / 2) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_min_p(share_); }

 private:
  float share_;
};

constexpr SamplingParameter kStarlingParameters[] = {
    {.name = "starling",
     .member = &SamplingOptions::starling,
     .symbol = "X",
     .help = "drop tokens less likely than X / 2 times the most likely one; 0 is off",
     .allowed = "0 (off) to 1",
     .range = {0, 1},
     .input = {0, 1},
     .neutral = 0},
};

}  // namespace

extern const SamplerRow kStarlingSampler = {
    .name = "starling",
    .kind = SamplerKind::kTruncation,
    .after = "min_p",
    .parameters = kStarlingParameters,
    .is_active = [](const SamplingOptions& o) { return o.starling > 0; },
    .make = make_sampler_step<Starling>,
};

}  // namespace redline
""")
    tree.write("tests/llm/starling_test.cc", TEST.format(
        header="llm/sampler_registry.h", suite="Starling", body='EXPECT_TRUE(sampler_name("starling").ok());'))


def add_drafter(tree):
    """Drafts the last token again, a word that the registry has to find by name."""
    tree.write("src/llm/drafters/starling.cc", """// Starling: the last token again, for a test of costs.
#include "llm/drafters/drafter.h"

namespace redline {
namespace {

class StarlingDrafter final : public Drafter {
 public:
  Status propose(int64_t max_tokens, Draft& draft) override {
    if (max_tokens > 0 && last_ >= 0) draft.tokens.push_back(last_);
    return {};
  }
  void observe(std::span<const int32_t> tokens, int64_t /*num_accepted*/) override {
    if (!tokens.empty()) last_ = tokens.back();
  }
  void roll_back(int64_t /*length*/) override {}

 private:
  int32_t last_ = -1;
};

}  // namespace

extern const DrafterRow kStarlingDrafter = {
    .name = "starling",
    .make = [](const DrafterContext&) -> std::unique_ptr<Drafter> { return std::make_unique<StarlingDrafter>(); },
};

}  // namespace redline
""")
    tree.write("tests/llm/drafters/starling_test.cc", TEST.format(
        header="llm/drafters/drafter.h", suite="Starling", body='EXPECT_TRUE(drafter_from_name("starling", {}).ok());'))


def add_step_cache_rule(tree):
    tree.write("src/diffusion/step_cache/rules/starling_rule.cc", """// starling: every step after the first is skipped.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kParameters[] = {
    {"warmup", ParameterKind::kInteger, "1", 1, 1e6, "steps that are computed first", /*sets_cost=*/true},
};

Result<RulePlan> plan(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kOutput;
  plan.decision = Decision::kAlways;
  plan.guards.first.count = [warmup = values.integer("warmup")](int64_t) { return warmup; };
  return plan;
}

}  // namespace

extern const RuleRow kStarlingRule = {
    .name = "starling",
    .summary = "every step after the first is skipped",
    .source = "-",
    .parameters = kParameters,
    .knob = {TuningKnob::Kind::kInteger, "warmup", 1, 1000},
    .plan = plan,
};

}  // namespace redline
""")
    tree.write("tests/diffusion/step_cache/starling_rule_test.cc", TEST.format(
        header="diffusion/step_cache/rule.h", suite="Starling", body='EXPECT_TRUE(find_rule("starling").ok());'))


def add_forecaster(tree):
    tree.write("src/diffusion/step_cache/starling_forecaster.cc", """// starling: the last value but one.
#include "diffusion/step_cache/forecaster.h"

namespace redline {
namespace {

class StarlingForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 2; }
  void weights(const History& history, const ForecastPoint&, int64_t, std::span<double> weights) override {
    weights[static_cast<size_t>(history.size()) - 1] = 1;
  }
};

std::unique_ptr<Forecaster> make_starling_forecaster() { return std::make_unique<StarlingForecaster>(); }

constexpr ForecasterRow kStarlingOps[] = {{"starling", "the last value but one", make_starling_forecaster}};

}  // namespace

extern const ForecasterRows kStarlingForecasters = kStarlingRows;

}  // namespace redline
""")
    tree.write("tests/diffusion/step_cache/starling_forecaster_test.cc", TEST.format(
        header="diffusion/step_cache/forecaster.h", suite="Starling",
        body='EXPECT_TRUE(find_forecaster("starling").ok());'))


def add_block_format(tree):
    """Q5_1 under another name and number."""
    text = tree.read("src/tensor/blocks/q5_1.h").replace("Q5_1", "QX_1").replace("q5_1", "qx_1")
    tree.write("src/tensor/blocks/qx_1.h", text.replace("kGgufType = 7", "kGgufType = 90"))
    formats = "src/tensor/blocks/all.h"
    tree.replace(formats, r'(#include "tensor/blocks/tq1_0.h"\n)', r'#include "tensor/blocks/qx_1.h"\n\1')
    tree.replace(formats, r"F\(MXFP4\)", "F(MXFP4) F(QX_1)")
    tree.write("tests/tensor/qx_1_test.cc", TEST.format(
        header="tensor/dtype.h", suite="Qx1", body='EXPECT_TRUE(dtype_from_name("qx_1").ok());'))


def add_op(tree):
    """y = -x: shape rule and reference, kernel, lowering, bench case."""
    tree.write("src/graph/ops/starling.h", """#pragma once

#include "graph/graph.h"

namespace redline {

/// y = -x, x [rows, cols] f32.
Value starling(GraphBuilder& g, Value x);

extern const OpDef kStarling;

}  // namespace redline
""")
    tree.write("src/graph/ops/starling.cc", """#include "graph/ops/starling.h"

#include "graph/reference.h"

namespace redline {

Value starling(GraphBuilder& g, Value x) {
  if (!x.valid()) return {};
  return g.add(kStarling, {x}, DType::kF32, g.info(x).shape);
}

namespace {

Status reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = -c.in(0).data[i];
  return {};
}

}  // namespace

const OpDef kStarling = {.name = "starling", .reference = reference};

}  // namespace redline
""")
    tree.write("src/backends/cpu/lower/starling.cc", """#include "graph/ops/starling.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct StageParams {
  void (*kernel)(const StarlingArgs&);
  int64_t cols;
  Operand<const float> x;
  Operand<float> y;
};

void run(const StageParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const int64_t at = tile.row_begin * p.cols;
  p.kernel({.x = p.x + at, .y = p.y + at, .count = (tile.row_end - tile.row_begin) * p.cols});
}

Status lower(LowerContext& c) {
  auto params = std::make_shared<StageParams>();
  params->kernel = c.kernels().starling;
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kStarlingOps[] = {{&kStarling, lower}};

}  // namespace

extern const CpuLowerings kStarlingLowerings = kStarlingOps;

}  // namespace redline
""")
    tree.write("src/kernels/cpu/starling.kernel.cc", """// y = -x.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void starling(const StarlingArgs& a) {
  for_lanes(a.count, [&](int64_t i, auto lanes) { store(a.y + i, zero_f32() - load(a.x + i, lanes), lanes); });
}

}  // namespace

void fill_starling(CpuKernels& table) { table.starling = starling; }

}  // namespace redline::REDLINE_ISA_NS
""")
    kernels = "src/kernels/cpu/cpu_kernels.h"
    tree.replace(kernels, r"(/// [^\n]*\nstruct ExpArgs \{)", r"/// Arguments of y = -x. y may be x.\nstruct StarlingArgs {\n  const float* x;\n  float* y;\n  int64_t count;\n};\n\n\1")
    tree.replace(kernels, r"(\n  K\(void \(\*exp\))", r"\n  K(void (*starling)(const StarlingArgs&), starling) \\\1")
    bench = "src/lab/kernels/kernel_case_rows.cc"
    tree.replace(bench, r'(    \{"exp", "K", "", "y = e\^x"\},\n)', r'\1    {"starling", "K", "", "y = -x"},\n')
    tree.replace(bench, r'(  \} else if \(name == "exp" && t\.exp\) \{\n)', r"""  } else if (name == "starling" && t.starling) {
    op.run = [=, fn = t.starling](const float* in, float* y, const auto&, int64_t begin, int64_t end) {
      fn({in + begin * k, y + begin * k, (end - begin) * k});
    };
    op.expect = [=](const float* in, const auto&, int64_t r, int64_t i) { return std::pair(-double{in[r * k + i]}, 0.0); };
\1""")
    tree.write("tests/graph/ops/starling_test.cc", TEST.format(
        header="backends/cpu/lowering.h\"\n#include \"graph/ops/starling.h", suite="Starling",
        body='EXPECT_NE(find_cpu_lowering(&kStarling), nullptr);'))


def add_collective(tree):
    """y = the largest value of all ranks, elementwise: shape rule and reference, lowering through the rank group."""
    tree.write("src/graph/ops/starling.h", """#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"
#include "ranks/rank_group.h"

namespace redline {

struct StarlingAttrs {
  std::shared_ptr<RankGroup> group;
  std::string exchange;  ///< name of the exchange in `group`
};

/// y = the largest of the ranks' x, elementwise; x [rows, cols] f32.
Value starling(GraphBuilder& g, Value x, StarlingAttrs attrs);

extern const OpDef kStarling;

}  // namespace redline
""")
    tree.write("src/graph/ops/starling.cc", """#include "graph/ops/starling.h"

#include "graph/reference.h"

namespace redline {

Value starling(GraphBuilder& g, Value x, StarlingAttrs attrs) {
  if (!x.valid()) return {};
  return g.add(kStarling, {x}, DType::kF32, g.info(x).shape, std::move(attrs));
}

namespace {

Status reference(ReferenceContext& c) {
  const auto& attrs = c.attrs<StarlingAttrs>();
  std::vector<double>& y = c.out().data;
  y = c.in(0).data;
  RankExchange& round = attrs.group->exchange(attrs.exchange);
  round.arrive(c.in(0).data.data(), static_cast<int64_t>(y.size() * sizeof(double)));
  for (const void* part : round.parts())
    for (size_t i = 0; i < y.size(); ++i) y[i] = std::max(y[i], static_cast<const double*>(part)[i]);
  round.leave();
  return attrs.group->status();
}

}  // namespace

const OpDef kStarling = {.name = "starling", .reference = reference};

}  // namespace redline
""")
    tree.write("src/backends/cpu/lower/starling.cc", """#include "graph/ops/starling.h"

#include <algorithm>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct StageParams {
  std::shared_ptr<RankGroup> group;
  RankExchange* exchange;
  Dim rows;
  int64_t cols;
  Operand<const float> x;
  Operand<float> y;
};

void run(const StageParams& p, const Tile&, const StepContext& step, WorkerContext&) {
  const int64_t count = p.rows.eval(step.sizes) * p.cols;
  p.exchange->arrive(p.x, count * int64_t{sizeof(float)});
  std::copy_n(static_cast<const float*>(p.x), count, static_cast<float*>(p.y));
  for (const void* part : p.exchange->parts())
    for (int64_t i = 0; i < count; ++i) p.y[i] = std::max(p.y[i], static_cast<const float*>(part)[i]);
  p.exchange->leave();
}

Status lower(LowerContext& c) {
  const auto& attrs = std::any_cast<const StarlingAttrs&>(c.op().attrs);
  auto params = std::make_shared<StageParams>();
  params->group = attrs.group;
  params->exchange = &attrs.group->exchange(attrs.exchange);
  params->rows = c.out().shape[0];
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = LoweredStage::make<run>(TaskGrid::work_partitions(1, 1), params);
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kStarlingOps[] = {{&kStarling, lower}};

}  // namespace

extern const CpuLowerings kStarlingLowerings = kStarlingOps;

}  // namespace redline
""")
    tree.write("tests/graph/ops/starling_test.cc", TEST.format(
        header="backends/cpu/lowering.h\"\n#include \"graph/ops/starling.h", suite="Starling",
        body='EXPECT_NE(find_cpu_lowering(&kStarling), nullptr);'))


def add_fusion(tree):
    """Two gated activations in a row would become one; here nothing does."""
    tree.write("src/graph/passes/fuse_starling.cc", """#include "graph/pass.h"

namespace redline {
namespace {

Status fuse_starling(Graph& graph) {
  std::erase_if(graph.ops, [](const Op& op) { return op.def == nullptr; });
  return {};
}

}  // namespace

extern const GraphPass kFuseStarling = {
    .name = "fuse_starling", .phase = PassPhase::kFusion, .rewrite = fuse_starling};

}  // namespace redline
""")
    tree.write("tests/graph/passes/fuse_starling_test.cc", TEST.format(
        header="graph/pass.h", suite="FuseStarling",
        body='Graph graph;\n  EXPECT_TRUE(run_pass("fuse_starling", graph).ok());'))


def add_instruction_set(tree):
    """The generic set under another name."""
    kernels = "src/kernels/cpu/"
    tree.write(kernels + "simd_starling.inc", tree.read(kernels + "simd_generic.inc"))
    tree.replace("cmake/RedlineKernels.cmake", r"(set\(REDLINE_CPU_BASE_ISAS generic) avx2 avx512", r"\1 starling avx2 avx512")


def add_endpoint(tree):
    tree.write("src/server/endpoints/starling.cc", """// GET /starling: for a test of costs.
#include "server/app.h"

namespace redline::server {
namespace {

AnswerOr get_starling(Call& call) { return json_answer({{"path", call.http.path}}); }

}  // namespace

std::vector<Endpoint> starling_endpoints() {
  return {{"GET", "/starling", "operations", "its path", {{200, "the path"}}, get_starling}};
}

}  // namespace redline::server
""")
    tree.write("tests/server/starling_test.cc", """#include <gtest/gtest.h>

#include <algorithm>

#include "server/endpoint.h"

namespace redline::server {
namespace {

TEST(Starling, IsAnEndpoint) {
  const std::vector<Endpoint>& all = endpoints();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Endpoint& e) { return e.path == "/starling"; }));
}

}  // namespace
}  // namespace redline::server
""")


def add_command(tree):
    tree.write("src/cli/starling_command.cc", """// redline starling: for a test of costs.
#include "cli/command.h"

namespace redline::cli {
namespace {

struct StarlingArgs {
  std::string word;
  void visit(OptionList& v) { v.argument(word, "WORD", "is printed"); }
};

Status run_starling(const StarlingArgs& args, Terminal& terminal) {
  terminal.print("{}\\n", args.word);
  return {};
}

}  // namespace

Command starling_command() {
  return make_command<StarlingArgs, run_starling>("starling", "print a word", "Prints it.", {"redline starling egg"})
      .in("measure", /*after=*/"devices");
}

}  // namespace redline::cli
""")
    tree.write("tests/e2e/starling.test", 'run starling egg\nexit 0\nstdout "egg\\n"\n')
    tree.replace("docs/cli.md", r"(\n## redline help\n)", r"\n## redline starling\n\nprint a word\n\1")


# kind -> (what adds it, the number of files that it should take or None, the most that it may touch, what they are and why
# they are more than they should be).
ADDITIONS = {
    "op": (
        add_op, 5, 7,
        "`graph/ops/NAME.{h,cc}`, `kernels/cpu/NAME.kernel.cc`, a test, its case in `lab/kernels/kernel_case_rows.cc`; and "
        "`backends/cpu/lower/NAME.cc`, because the graph knows no device, and its entry in `cpu_kernels.h`, because the kernels of "
        "each instruction set are pointers in one table. The build finds lowerings and kernels"),
    "collective op": (
        add_collective, 5, 5,
        "`graph/ops/NAME.{h,cc}`, `backends/cpu/lower/NAME.cc`, which the build finds, a test. It exchanges data through "
        "`ranks/rank_group.h`, which a new transport implements once for all ops"),
    "fusion": (
        add_fusion, 2, 2, "`graph/passes/NAME.cc` with its row, which the build finds, a test"),
    "text family": (add_text_family, 3, 3, "`models/text/NAME.cc` with its row, the list in `models/registry.cc`, a test"),
    "diffusion family": (
        add_diffusion_family, 3, 3,
        "`models/image/NAME.cc` with its rows, the lists in `models/image/image_registry.cc`, a test; for `redline.diffusers` also a class in "
        "`python/redline/_torch_modules.py`, because each module's `forward` has arguments of its own"),
    "video family": (
        add_video_family, 3, 3,
        "`models/video/NAME.cc` with its rows, the lists in `models/image/image_registry.cc`, a test"),
    "solver": (add_solver, 2, 2, "`diffusion/solvers/NAME.cc` with its row, which the build finds, a test"),
    "sampler": (
        add_sampler, 2, 3,
        "`llm/samplers/NAME.cc` with its row, place and parameters, from which flags and request fields are made, a test; and its "
        "member of `SamplingOptions`, the row of `redline/generate_options.inc` that C and Python have too"),
    "drafter": (add_drafter, 2, 2, "`llm/drafters/NAME.cc` with its row, which the build finds, a test"),
    "step-cache rule": (
        add_step_cache_rule, 2, 2, "`diffusion/step_cache/rules/NAME_rule.cc` with its row, which the build finds, a test"),
    "forecaster": (
        add_forecaster, None, 2, "`diffusion/step_cache/NAME_forecaster.cc` with its rows, which the build finds, a test"),
    "block format": (
        add_block_format, 3, 3, "`tensor/blocks/NAME.h`, its name and `#include` in `blocks/all.h`, a test"),
    "instruction set": (
        add_instruction_set, 2, 2,
        "`simd_NAME.inc`; its name, flags and features in `cmake/RedlineKernels.cmake`; the tests of kernels run for every set. A "
        "feature that no other set needs is detected in `kernels/cpu/cpu_features.cc`"),
    "endpoint": (add_endpoint, 2, 2, "`server/endpoints/NAME.cc`, which the build finds, a test"),
    "engine option": (
        add_engine_option, 3, 3,
        "its row in `redline/text_engine_options.inc`, from which C++, C, Python, flags and their help are made, its use, a test"),
    "command": (
        add_command, 2, 3,
        "`cli/NAME_command.cc`, which the build finds, `tests/e2e/NAME.test`; and its page in `docs/cli.md`, which `redline help "
        "--markdown` writes"),
}
