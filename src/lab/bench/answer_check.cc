#include "lab/bench/answer_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/mapped_file.h"
#include "lab/bench/self_process.h"
#include "lab/bench/text_rows.h"
#include "models/files/random_model.h"
#include "tensor/dtype.h"

namespace redline::lab {
namespace {

/// Returns the maximum absolute difference divided by the maximum absolute value.
double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(double{got[i]} - double{expected[i]});
    difference = std::isfinite(d) ? std::max(difference, d) : INFINITY;
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return largest > 0 ? difference / largest : difference;
}

bool has_block_weights(const ModelInfo& info) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const DTypeInfo& type = dtype_info(static_cast<DType>(t));
    if (type.is_block && info.weight_types.find(fmt::format("{} x", type.name)) != std::string::npos) return true;
  }
  return false;
}

/// A temporary folder, removed with its contents.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    std::string pattern = (std::filesystem::temp_directory_path(error) / "redline_bench_XXXXXX").string();
    if (!error && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<int32_t> check_tokens(int64_t vocab_size, int64_t context) {
  return bench_tokens(std::min<int64_t>(8, context), vocab_size, 0);
}

Result<std::vector<float>> generic_logits(const std::string& path, const std::vector<int32_t>& tokens,
                                          std::string_view dtype, int threads, double limit_seconds,
                                          const std::function<bool()>& is_cancelled) {
  const ScratchFolder folder;
  if (folder.path().empty()) return io("no room for a temporary file; set TMPDIR");
  const std::string out = folder.path() + "/logits.npy";
  std::vector<std::string> arguments = {"logits",    path,
                                        "--tokens",  fmt::format("{}", fmt::join(tokens, ",")),
                                        "--dtype",   std::string(dtype),
                                        "--context", std::to_string(std::max<size_t>(tokens.size(), 1)),
                                        "--out",     out,
                                        "--device",  "cpu"};
  if (threads > 0) arguments.insert(arguments.end(), {"--threads", std::to_string(threads)});
  // Weights packed for the generic set are used once, so they are not cached.
  REDLINE_TRY(run_self(arguments, {"REDLINE_CPU_ISA=generic", "REDLINE_CACHE_GB=0"}, limit_seconds, is_cancelled));
  REDLINE_ASSIGN(const auto file, MappedFile::open(out));
  // [positions, vocabulary] float32 after a header; its bytes 8 and 9 give the header's length.
  uint16_t header = 0;
  if (file->size() > 10) std::memcpy(&header, file->data() + 8, 2);
  const int64_t bytes = file->size() - 10 - header, row = bytes / static_cast<int64_t>(tokens.size());
  if (row <= 0 || row % 4 != 0) return internal("{}: {} bytes of logits", out, bytes);
  std::vector<float> last(static_cast<size_t>(row) / 4);
  std::memcpy(last.data(), file->data() + file->size() - row, static_cast<size_t>(row));
  return last;
}

Result<AnswerCheck> check_answer(TextEngine& engine, const TextEngineOptions& options, const std::string& path,
                                 const std::vector<float>& generic, const std::string& why_not) {
  const ModelInfo& info = engine.info();
  const std::vector<int32_t> tokens = check_tokens(info.vocab_size, info.context);
  REDLINE_ASSIGN(const auto sequence, engine.new_sequence());
  REDLINE_ASSIGN(const std::vector<float> got, sequence->forward(tokens));
  AnswerCheck check;
  check.tokens = static_cast<int64_t>(tokens.size());
  // Sources of error: float32 sums in another order; a cache in 16 bits rounds keys and values by up to 2^-11, beside
  // block formats 2^-8; kernels may round their operands to bfloat16, by up to 2^-9; int8 activations round by up to
  // 1/254 of a group's largest value. All of it in every layer. Converted weights are those of the reference too.
  const bool is_exact = options.dtype == Precision::kF32;
  check.bound = is_exact ? 2e-4 : has_block_weights(info) ? 0.1 : 2e-2;
  std::vector<float> expected;
  if (info.parameters <= kInterpretedParameters && !options.use_interpreter) {
    check.against = "interpreter";
    TextEngineOptions plain = options;
    plain.use_interpreter = true;
    plain.trace_file.clear();
    REDLINE_ASSIGN(const auto reference, TextEngine::open(path, plain));
    REDLINE_ASSIGN(const auto reference_sequence, reference->new_sequence());
    REDLINE_ASSIGN(expected, reference_sequence->forward(tokens));
  } else if (generic.size() == got.size()) {
    check.against = fmt::format("generic {}", info.conversion.type.empty() ? "f32" : info.conversion.type);
    expected = generic;
  } else {
    check.against = "token by token";
    check.note = why_not;
    check.bound = 1e-4;
    // The choice between int8, bfloat16 and float32 kernels may depend on the number of rows.
    if (!is_exact) check.bound = has_block_weights(info) ? 0.1 : 2e-2;
    REDLINE_ASSIGN(const auto other, engine.new_sequence());
    for (const int32_t& token : tokens) {
      REDLINE_ASSIGN(expected, other->forward(std::span(&token, 1)));
    }
  }
  check.relative_error = relative_error(got, expected);
  if (!(check.relative_error <= check.bound))
    return internal("the answer is wrong: logits differ from {} by {:.2g} of the largest; at most {:.2g} is rounding",
                    check.against, check.relative_error, check.bound);
  return check;
}

}  // namespace redline::lab
