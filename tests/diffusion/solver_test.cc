#include "diffusion/solver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "diffusion/noise_schedule.h"
#include "diffusion/torch_generator.h"
#include "redline/image.h"
#include "support/npz.h"

namespace redline {
namespace {

using nlohmann::json;

constexpr const char* kFolder = REDLINE_SOURCE_DIR "/tests/golden/image/solvers/";

StepPlan plan_of(const json& c) {
  StepPlan plan;
  plan.steps = c.at("steps");
  plan.image_tokens = c.at("image_tokens");
  plan.strength = c.at("strength");
  plan.eta = c.at("eta");
  plan.even_sigmas = c.at("even_sigmas");
  if (!c.at("sigmas").is_null()) plan.sigmas = c.at("sigmas").get<std::vector<float>>();
  return plan;
}

// Largest difference, relative to the largest value expected.
double relative_error(std::span<const float> got, const double* expected) {
  double error = 0, most = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::abs(got[i] - expected[i]));
    most = std::max(most, std::abs(expected[i]));
  }
  return error / most;
}

// How far from diffusers' values ours may be. Both compute in float32, operation for operation, so without logarithms
// and exponentials they differ by where a product is rounded: a few units of 2^-24 a step. DPM-Solver++ and UniPC step
// by h = the difference of two logarithms of size up to 7: one unit in the last place of one of them (torch's vector
// library and the C library differ by that) is 5e-7, for h of 0.1 and more 5e-6 of the step. Most cases are equal to
// the bit; the worst seen is 6e-7.
double tolerance(const std::string& class_name, int steps) {
  const bool logarithms = class_name.starts_with("DPM") || class_name.starts_with("UniPC");
  return logarithms ? 5e-6 : steps * 4 * 0x1p-24;
}

TEST(Solver, WalksAsDiffusersStepByStep) {
  const auto arrays = testing::read_npz(std::string(kFolder) + "io.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  const auto values = [&](const std::string& name) -> const std::vector<double>& { return arrays->at(name).values; };
  const auto floats = [&](const std::string& name) {
    return std::vector<float>(values(name).begin(), values(name).end());
  };
  const json cases = json::parse(std::ifstream(std::string(kFolder) + "cases.json"));
  const std::vector<float> start = floats("start"), noise = floats("noise"), vector = floats("vector");
  for (const json& c : cases) {
    const std::string name = c.at("name");
    SCOPED_TRACE(name);
    auto made = Solver::make(c.at("config"));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    Solver& solver = **made;
    for (int run = 0; run < 2; ++run) {  // the second: nothing is left of the first
      const Status status = solver.set_steps(plan_of(c));
      ASSERT_TRUE(status.ok()) << status.to_string();
      const testing::NpyArray& xs = arrays->at(name + ".x");
      const int steps = static_cast<int>(xs.dim(0)) - 1;
      ASSERT_EQ(solver.num_steps(), steps);
      const std::vector<double> timesteps = values(name + ".timesteps");
      for (int i = 0; i < steps; ++i)  // logarithms again: 1e-7 of the log, over 0.01 a timestep
        EXPECT_NEAR(solver.timesteps()[i], timesteps[i], 2e-4) << "timestep " << i;
      if (arrays->contains(name + ".sigmas")) {
        const std::vector<double> sigmas = values(name + ".sigmas");
        ASSERT_EQ(solver.sigmas().size(), sigmas.size());
        for (size_t i = 0; i < sigmas.size(); ++i)
          EXPECT_NEAR(solver.sigmas()[i], sigmas[i], 4 * 0x1p-24 * sigmas[i]) << "sigma " << i;
      }
      EXPECT_NEAR(solver.init_noise_sigma(), values(name + ".init")[0], 4 * 0x1p-24 * values(name + ".init")[0]);
      const double allowed = tolerance(c.at("config").at("_class_name"), steps);
      std::vector<float> x(start.size()), scaled(x.size()), output(x.size());
      solver.add_noise(0, start, noise, x);
      EXPECT_LT(relative_error(x, values(name + ".noised").data()), allowed);
      solver.add_noise(steps, start, noise, x);
      EXPECT_EQ(x, start);

      TorchGenerator generator(11);
      for (int i = 0; i < steps; ++i) {
        const float weight = static_cast<float>(timesteps[i]) * 0.001f;
        solver.scale_input(i, x, scaled);
        for (size_t k = 0; k < x.size(); ++k) output[k] = 0.25f * scaled[k] + vector[k] * weight;
        const Status stepped = solver.step(i, output, x, generator);
        ASSERT_TRUE(stepped.ok()) << stepped.to_string();
        EXPECT_LT(relative_error(x, xs.row(i + 1)), allowed) << "after step " << i;
      }
    }
  }
}

TEST(Solver, StepsComeInOrderAndOfOneSize) {
  auto solver = Solver::make({{"_class_name", "FlowMatchEulerDiscreteScheduler"}});
  ASSERT_TRUE(solver.ok());
  std::vector<float> x(4), output(4), longer(5);
  TorchGenerator generator(0);
  EXPECT_EQ((*solver)->step(0, output, x, generator).code(), Code::internal) << "before set_steps";
  ASSERT_TRUE((*solver)->set_steps({.steps = 2}).ok());
  EXPECT_EQ((*solver)->step(1, output, x, generator).code(), Code::internal);
  EXPECT_EQ((*solver)->step(0, longer, x, generator).code(), Code::internal);
  EXPECT_TRUE((*solver)->step(0, output, x, generator).ok());
  EXPECT_EQ((*solver)->step(1, longer, longer, generator).code(), Code::internal);
  EXPECT_TRUE((*solver)->step(1, output, x, generator).ok());
  EXPECT_EQ((*solver)->step(2, output, x, generator).code(), Code::internal);
}

Status status_of(const json& config) {
  auto made = Solver::make(config);
  return made.ok() ? Status() : made.status();
}

// A step cache and calibration ask which solvers have the step x += step_size * model_output.
TEST(Solver, StepSizesAreThoseOfEulerSteps) {
  const auto step_size = [](json config) {
    auto solver = Solver::make(config);
    EXPECT_TRUE(solver.ok()) << solver.status().to_string();
    EXPECT_TRUE((*solver)->set_steps({.steps = 4}).ok());
    EXPECT_TRUE((*solver)->step_size(1) == 0 ||
                (*solver)->step_size(1) == double{(*solver)->sigmas()[2]} - double{(*solver)->sigmas()[1]});
    return (*solver)->step_size(1);
  };
  EXPECT_LT(step_size({{"_class_name", "FlowMatchEulerDiscreteScheduler"}}), 0);
  EXPECT_EQ(step_size({{"_class_name", "flow-euler"}, {"stochastic_sampling", true}}), 0);
  EXPECT_LT(step_size({{"_class_name", "EulerDiscreteScheduler"}}), 0);
  EXPECT_EQ(step_size({{"_class_name", "euler"}, {"prediction_type", "v_prediction"}}), 0);
  for (const char* other : {"euler-ancestral", "ddim", "dpm++", "unipc", "lcm"})
    EXPECT_EQ(step_size({{"_class_name", other}}), 0) << other;
}

// The model's output is made from the clean latents and the noise by the definition of each prediction type.
TEST(Solver, PredictsTheCleanLatentsThatAnOutputStandsFor) {
  std::vector<float> clean(64), noise(64), x(64), output(64), predicted(64);
  TorchGenerator generator(3);
  generator.draw(clean);
  generator.draw(noise);
  const auto check = [&](const json& config) {
    SCOPED_TRACE(config.dump());
    auto made = Solver::make(config);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Solver& solver = **made;
    ASSERT_TRUE((*made)->set_steps({.steps = 4}).ok());
    const std::string type = config.value("prediction_type", solver.is_flow() ? "flow_prediction" : "epsilon");
    for (int i = 0; i < solver.num_steps(); ++i) {
      solver.add_noise(i, clean, noise, x);
      // signal and spread of the level, from what add_noise does to a unit of each.
      const std::vector<float> one = {1}, none = {0};
      float signal = 0, spread = 0;
      solver.add_noise(i, one, none, {&signal, 1});
      solver.add_noise(i, none, one, {&spread, 1});
      const double length = std::hypot(signal, spread);
      for (size_t k = 0; k < x.size(); ++k) {
        const double c = clean[k], n = noise[k];
        output[k] = static_cast<float>(type == "epsilon"        ? n
                                       : type == "sample"       ? c
                                       : type == "v_prediction" ? (signal * n - spread * c) / length
                                                                : n - c);
      }
      solver.predict_clean(i, x, output, predicted);
      // x / signal: rounding of x is multiplied by 1 / signal.
      for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(predicted[k], clean[k], 8 * 0x1p-24 * 8 * length / signal);
    }
  };
  check({{"_class_name", "flow-euler"}});
  for (const char* name : {"euler", "euler-ancestral", "ddim", "lcm", "pndm", "dpm++", "unipc"})
    for (const char* type : {"epsilon", "v_prediction", "sample"}) {
      const bool takes_sample = std::string_view(name) != "euler-ancestral" && std::string_view(name) != "pndm";
      if (std::string_view(type) == "sample" && !takes_sample) continue;
      json config = {{"_class_name", name}, {"prediction_type", type}};
      if (std::string_view(name) == "pndm") config["skip_prk_steps"] = true;
      check(config);
    }
  check({{"_class_name", "unipc"}, {"prediction_type", "flow_prediction"}, {"use_flow_sigmas", true}});
}

TEST(Solver, RefusesWhatItDoesNotKnow) {
  const auto expect = [](const json& config, Code code, const std::string& words) {
    const Status status = status_of(config);
    EXPECT_EQ(status.code(), code) << config.dump() << ": " << status.to_string();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
  };
  expect(json::object(), Code::invalid_argument, "_class_name is missing");
  expect(json::array(), Code::invalid_argument, "_class_name is missing");
  expect({{"_class_name", "HeunDiscreteScheduler"}}, Code::unsupported,
         "(the nearest is EulerDiscreteScheduler); Redline has DDIMScheduler");
  expect({{"_class_name", "EulerDiscreteScheduler"}, {"beta_sedule", "linear"}}, Code::unsupported,
         "the field \"beta_sedule\" is unknown; this scheduler has beta_end, beta_schedule");
  expect({{"_class_name", "EulerDiscreteScheduler"}, {"beta_schedule", "sigmoid"}}, Code::unsupported,
         "beta_schedule is \"sigmoid\"; Redline has linear, scaled_linear, squaredcos_cap_v2");
  expect({{"_class_name", "EulerDiscreteScheduler"}, {"beta_start", "a"}}, Code::invalid_argument, "beta_start");
  expect({{"_class_name", "EulerDiscreteScheduler"}, {"interpolation_type", "log_linear"}}, Code::unsupported,
         "interpolation_type is \"log_linear\"; Redline does \"linear\" only");
  expect({{"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"invert_sigmas", true}}, Code::unsupported,
         "invert_sigmas");
  expect({{"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"use_karras_sigmas", true}, {"use_beta_sigmas", true}},
         Code::invalid_argument, "only one of");
  expect({{"_class_name", "DDIMScheduler"}, {"thresholding", true}}, Code::unsupported, "thresholding");
  expect({{"_class_name", "DDIMScheduler"}, {"num_train_timesteps", 1e9}}, Code::invalid_argument,
         "num_train_timesteps");
  expect({{"_class_name", "DDIMScheduler"}, {"trained_betas", {0.1, "x"}}}, Code::invalid_argument, "trained_betas");
  expect({{"_class_name", "DDIMScheduler"}, {"trained_betas", {0.1, 0.2}}}, Code::invalid_argument,
         "2 trained_betas for 1000");
  expect({{"_class_name", "DPMSolverMultistepScheduler"}, {"solver_order", 3}}, Code::invalid_argument, "solver_order");
  expect({{"_class_name", "DPMSolverMultistepScheduler"}, {"algorithm_type", "dpmsolver"}}, Code::unsupported,
         "dpmsolver++, sde-dpmsolver++");
  expect({{"_class_name", "UniPCMultistepScheduler"}, {"predict_x0", false}}, Code::unsupported, "predict_x0");
  expect({{"_class_name", "PNDMScheduler"}}, Code::unsupported, "skip_prk_steps");
  // Keys of another scheduler and private keys are passed over, as diffusers does.
  EXPECT_TRUE(
      status_of({{"_class_name", "EulerDiscreteScheduler"}, {"shift", 3.0}, {"_diffusers_version", "0.42"}}).ok());
}

TEST(Solver, RefusesPlansThatCannotBe) {
  const auto expect = [](const json& config, const StepPlan& plan, const std::string& words) {
    auto solver = Solver::make(config);
    ASSERT_TRUE(solver.ok()) << solver.status().to_string();
    const Status status = (*solver)->set_steps(plan);
    EXPECT_NE(status.code(), Code::ok) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
  };
  const json flow = {{"_class_name", "flow-euler"}}, ddim = {{"_class_name", "ddim"}, {"steps_offset", 1}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect(flow, {.steps = 0}, "0 steps; expected 1 to 10000");
  expect(flow, {.steps = 20000}, "20000 steps");
  expect(flow, {.steps = 4, .strength = 0}, "strength is 0");
  expect(flow, {.steps = 4, .strength = nan}, "strength is nan");
  expect(flow, {.steps = 4, .sigmas = {0.5f, 0.7f}}, "0.7 at index 1");
  expect(flow, {.steps = 4, .sigmas = {static_cast<float>(nan)}}, "nan at index 0");
  expect(ddim, {.steps = 10, .strength = 0.05}, "leaves none of 10 steps");
  expect(ddim, {.steps = 4, .eta = 2}, "eta is 2");
  expect(ddim, {.steps = 1000}, "timestep 1000 is not one of the 1000");
  expect(ddim, {.steps = 1001}, "1001 steps");
  expect(ddim, {.steps = 4, .even_sigmas = true}, "takes no sigmas");
  expect({{"_class_name", "euler"}}, {.steps = 4, .eta = 1}, "only DDIM");
  expect({{"_class_name", "lcm"}}, {.steps = 51}, "distillation has 50");
  expect({{"_class_name", "flow-euler"}, {"use_dynamic_shifting", true}}, {.steps = 4}, "number of tokens");
}

// Where diffusers' numpy.arange gives a timestep more than asked for and ends at -1, ours ends at the last.
TEST(Solver, TrailingTimestepsAreAsManyAsAskedFor) {
  for (int steps = 1; steps <= 1000; ++steps) {
    auto solver = Solver::make({{"_class_name", "euler"}, {"timestep_spacing", "trailing"}});
    ASSERT_TRUE((*solver)->set_steps({.steps = steps}).ok());
    ASSERT_EQ((*solver)->num_steps(), steps);
    ASSERT_GE((*solver)->timesteps().back(), 0);
  }
}

TEST(Solver, AModelsSolverCanBeChanged) {
  const json flux = {{"_class_name", "FlowMatchEulerDiscreteScheduler"}, {"shift", 3.0}};
  auto changed = with_solver(flux, "unipc");
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_EQ((*changed)["flow_shift"], 3.0);
  EXPECT_EQ((*changed)["prediction_type"], "flow_prediction");
  EXPECT_TRUE(status_of(*changed).ok());
  changed = with_solver(*changed, "flow-euler");  // and back
  ASSERT_TRUE(changed.ok());
  EXPECT_TRUE(status_of(*changed).ok());

  const json sd = {{"_class_name", "PNDMScheduler"}, {"beta_schedule", "scaled_linear"}, {"skip_prk_steps", true}};
  changed = with_solver(sd, "dpm++-sde-karras");
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_EQ((*changed)["use_karras_sigmas"], true);
  EXPECT_EQ((*changed)["algorithm_type"], "sde-dpmsolver++");
  EXPECT_TRUE(status_of(*changed).ok());
  EXPECT_TRUE(with_solver(sd, "DDIMScheduler").ok());
  EXPECT_TRUE(with_solver(sd, "euler-ancestral").ok());
  // Names of other programs.
  for (const char* name : {"euler_a", "Euler a", "euler_ancestral"})
    EXPECT_EQ((*with_solver(sd, name))["_class_name"], "EulerAncestralDiscreteScheduler") << name;
  for (const char* name : {"dpm++2m", "dpmpp_2m", "DPM++ 2M"})
    EXPECT_EQ((*with_solver(sd, name))["_class_name"], "DPMSolverMultistepScheduler") << name;
  EXPECT_EQ((*with_solver(sd, "DPM++ 2M Karras"))["use_karras_sigmas"], true);
  EXPECT_EQ((*with_solver(sd, "uni_pc"))["_class_name"], "UniPCMultistepScheduler");
  EXPECT_EQ((*with_solver(flux, "euler"))["_class_name"], "FlowMatchEulerDiscreteScheduler");
  EXPECT_EQ((*with_solver(sd, "euler"))["_class_name"], "EulerDiscreteScheduler");
  EXPECT_EQ((*with_solver(sd, "dpmpp_2m_sde_karras"))["algorithm_type"], "sde-dpmsolver++");

  const SamplerNames names = sampler_names("dpm++-karras-sde");
  EXPECT_EQ(names.web_ui + "|" + names.web_ui_schedule, "DPM++ 2M SDE|Karras");
  EXPECT_EQ(names.comfyui + "|" + names.comfyui_schedule, "dpmpp_2m_sde|karras");
  EXPECT_EQ(sampler_names("flow-euler").comfyui_schedule, "simple");
  EXPECT_EQ(sampler_names("other").web_ui, "other");

  EXPECT_NE(with_solver(sd, "heun").status().message().find("ddim, dpm++, euler, euler-ancestral, flow-euler"),
            std::string::npos);
  EXPECT_NE(with_solver(sd, "").status().code(), Code::ok);
  EXPECT_NE(with_solver(sd, "flow-euler").status().message().find("flow-matching models only"), std::string::npos);
  EXPECT_NE(with_solver(flux, "ddim").status().message().find("cannot run"), std::string::npos);
}

// SciPy 1.17: scipy.stats.beta.ppf(p, 0.6, 0.6).
TEST(NoiseSchedule, BetaQuantile) {
  EXPECT_EQ(beta_quantile(0, 0.6), 0);
  EXPECT_EQ(beta_quantile(1, 0.6), 1);
  EXPECT_NEAR(beta_quantile(0.5, 0.6), 0.5, 1e-14);
  for (const auto& [p, x] : {std::pair{0.001, 1.855873851745199e-05}, std::pair{0.1, 0.03958440558878085},
                             std::pair{0.85, 0.9229514515062519}})
    EXPECT_NEAR(beta_quantile(p, 0.6), x, 1e-13 * x + 1e-15);
}

// With these betas every noise level is the root of a negative number.
TEST(Solver, ASigmaThatIsNoNumberIsRefused) {
  const auto solver = Solver::make(
      json{{"_class_name", "EulerDiscreteScheduler"}, {"num_train_timesteps", 2}, {"trained_betas", {2.0, 3.0}}});
  ASSERT_TRUE(solver.ok()) << solver.status().to_string();
  StepPlan plan;
  plan.steps = 1;
  EXPECT_EQ((*solver)->set_steps(plan).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline
