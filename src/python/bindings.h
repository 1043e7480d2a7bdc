// Shared parts of the extension module redline._redline: errors, handles, texts and arrays of the C interface.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "redline/c_api.h"

// Types in signatures. Token ids are arrays of NumPy or array.array.
#define REDLINE_FLOATS "numpy.typing.NDArray[numpy.float32]"
#define REDLINE_PIXELS "numpy.typing.NDArray[numpy.uint8]"
#define REDLINE_POSITIONS "numpy.typing.NDArray[numpy.int32]"
#define REDLINE_TOKENS "numpy.typing.NDArray[numpy.int32] | array.array[int]"

namespace redline::python {

namespace nb = nanobind;

/// Maximum milliseconds for which a wait in C may keep Python from handling a signal.
inline constexpr double kPollMs = 50;

/// Raises the class of redline.errors that belongs to `code`, with the engine's message. Frees `error`.
[[noreturn]] void raise(redline_code code, redline_error* error);
[[noreturn]] void raise(redline_code code, const char* message);
/// Handles pending signals, and raises the exceptions of their handlers.
void check_signals();

/// Releases the global interpreter lock for its lifetime. CPython before 3.14 unwinds a thread that takes the lock
/// while the interpreter ends, and an unwound destructor terminates a C++ program. Such a thread therefore waits here
/// for the end of the process.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  PyThreadState* state_;
};
/// Holds the lock for its lifetime, on any thread. At the end of the interpreter it waits, like Unlocked.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// Calls f(redline_error**) without the global interpreter lock.
template <class F>
redline_code unlocked(const F& f, redline_error*& error) {
  const Unlocked without_lock;
  return f(&error);
}
/// Calls f(redline_error**) without the global interpreter lock, and raises its error.
template <class F>
void call(const F& f) {
  redline_error* error = nullptr;
  if (const redline_code code = unlocked(f, error); code != REDLINE_OK) raise(code, error);
}

/// Owns a handle. Its release may wait for a callback that needs the global interpreter lock.
template <class T, void (*kRelease)(T*)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (value_ == nullptr) return;
    const Unlocked unlocked;
    kRelease(value_);
  }
  T* get() const { return value_; }
  /// Returns the address to which a function of the C interface writes a new handle.
  T** out() { return &value_; }

 private:
  T* value_ = nullptr;
};

struct Runtime : Handle<redline_runtime, redline_runtime_release> {};
struct Model : Handle<redline_model, redline_model_release> {};
struct PromptSpans : Handle<redline_prompt_spans, redline_prompt_spans_release> {};
struct ImagePipeline : Handle<redline_image_pipeline, redline_image_pipeline_release> {};

/// Converts text of the engine; bytes that are not UTF-8 become U+FFFD.
nb::str to_str(const char* text, size_t length);
/// Returns the text of f(char**, size_t* length, redline_error**), which need not set `length`.
template <class F>
nb::str text_of(const F& f) {
  char* text = nullptr;
  size_t length = REDLINE_STRING_END;
  call([&](redline_error** error) { return f(&text, &length, error); });
  const std::unique_ptr<char, void (*)(void*)> owner(text, redline_free);
  return to_str(text, length);
}

/// A bytes argument: UTF-8 with a zero byte after its end, which the caller keeps. It may be read without the global
/// interpreter lock.
struct Text {
  const char* data = nullptr;
  size_t size = 0;
};
using OptionalText = std::optional<Text>;
inline const char* c_str(const OptionalText& text) { return text ? text->data : nullptr; }

/// Token ids of NumPy, array.array or any other object with the buffer protocol.
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
/// Rows of embeddings, their positions by axis, and rows by layer.
using EmbeddingValues = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Positions = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LayerRows = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
/// Memory that the engine writes to.
using Rows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::numpy, float>;
using Pixels = nb::ndarray<nb::numpy, uint8_t, nb::ndim<3>>;

/// Returns a NumPy array over memory that `owner` keeps. It is not const: users may change the array.
inline nb::object view(const redline_float_array& array, nb::handle owner) {
  const std::vector<size_t> shape(array.shape, array.shape + array.num_axes);
  return nb::cast(Floats(const_cast<float*>(array.data), array.num_axes, shape.data(), owner));
}

/// Texts or token ids in the form of the C interface; the Python objects keep the memory.
class Prompts {
 public:
  explicit Prompts(const nb::list& prompts);
  const redline_prompt* data() const { return prompts_.data(); }
  size_t size() const { return prompts_.size(); }

 private:
  std::vector<redline_prompt> prompts_;
  std::vector<Tokens> tokens_;
};

/// A callback between steps, on the calling thread: lets Python handle signals, and carries an exception to the caller.
class StepCheck {
 public:
  StepCheck() = default;
  StepCheck(const StepCheck&) = delete;
  StepCheck& operator=(const StepCheck&) = delete;
  ~StepCheck() = default;

  /// call(), but an exception of a callback has precedence over the error that it caused.
  template <class F>
  void call(const F& f) {
    redline_error* error = nullptr;
    const redline_code code = unlocked(f, error);
    if (raised_ != nullptr) {
      redline_error_free(error);
      nb::python_error raised = std::move(*raised_);
      raised_.reset();
      throw raised;
    }
    if (code != REDLINE_OK) raise(code, error);
  }

  /// Callback for the C interface; `data` is this object.
  static int32_t on_step(void* data) {
    return static_cast<StepCheck*>(data)->run([] { return true; });
  }

  /// Runs `f` with the lock. Returns a value other than 0 if `f` returns false or raises.
  template <class F>
  int32_t run(const F& f) {
    if (raised_ != nullptr) return 1;
    const Locked locked;
    try {
      check_signals();
      return f() ? 0 : 1;
    } catch (nb::python_error& error) {
      raised_ = std::make_unique<nb::python_error>(std::move(error));
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      raised_ = std::make_unique<nb::python_error>();
    }
    return 1;
  }

 private:
  std::unique_ptr<nb::python_error> raised_;
};

void add_options(nb::module_& m);
void add_text(nb::module_& m, nb::class_<Model>& model);
void add_embedding(nb::module_& m);
void add_images(nb::module_& m, nb::class_<ImagePipeline>& pipeline);
void add_networks(nb::module_& m);

}  // namespace redline::python

template <>
struct nanobind::detail::type_caster<redline::python::Text> {
  NB_TYPE_CASTER(redline::python::Text, const_name("bytes"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!PyBytes_Check(source.ptr())) return false;
    value = {PyBytes_AsString(source.ptr()), static_cast<size_t>(PyBytes_Size(source.ptr()))};
    return true;
  }
};
