// The extension module redline._redline: the C interface for the Python package, which checks arguments and documents.
#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "python/options.h"

namespace redline::python {
namespace {

const char* error_class(redline_code code) {
  switch (code) {
    case REDLINE_INVALID_ARGUMENT: return "InvalidArgument";
    case REDLINE_NOT_FOUND: return "NotFound";
    case REDLINE_UNSUPPORTED: return "Unsupported";
    case REDLINE_OUT_OF_MEMORY: return "OutOfMemory";
    case REDLINE_CANCELLED: return "Cancelled";
    case REDLINE_IO: return "FileError";
    default: return "InternalError";
  }
}

/// Returns the path of the loaded library. REDLINE_LIBRARY may name another one than the library next to the module.
nb::str library_path() {
  Dl_info found = {};
  if (dladdr(reinterpret_cast<const void*>(&redline_version), &found) == 0 || found.dli_fname == nullptr)
    return nb::str("");
  return nb::str(found.dli_fname);
}

/// Returns take(). If the interpreter ends and unwinds this thread, waits for the end of the process instead.
template <class Take>
auto take_or_wait(const Take& take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

}  // namespace

Unlocked::~Unlocked() {
  take_or_wait([&] { PyEval_RestoreThread(state_); });
}

Locked::Locked() : state_(take_or_wait([] { return PyGILState_Ensure(); })) {}

void raise(redline_code code, redline_error* error) {
  const std::unique_ptr<redline_error, void (*)(redline_error*)> owner(error, redline_error_free);
  const char* message = redline_error_message(error);
  if (*message == '\0') message = redline_code_name(code);
  raise(code, message);
}

void raise(redline_code code, const char* message) {
  const nb::object type = nb::module_::import_("redline.errors").attr(error_class(code));
  PyErr_SetObject(type.ptr(), to_str(message, REDLINE_STRING_END).ptr());
  throw nb::python_error();
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::str to_str(const char* text, size_t length) {
  if (text == nullptr) return nb::str("");
  if (length == REDLINE_STRING_END) length = std::char_traits<char>::length(text);
  PyObject* const decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), "replace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

Prompts::Prompts(const nb::list& prompts) {
  // The address for an empty list. A pointer that is not NULL says that the prompt is ids.
  static constexpr int32_t kNone = 0;
  prompts_.reserve(prompts.size());
  for (nb::handle prompt : prompts) {
    if (nb::isinstance<nb::bytes>(prompt)) {
      const auto text = nb::borrow<nb::bytes>(prompt);
      prompts_.push_back({text.c_str(), text.size(), nullptr, 0});
    } else {
      tokens_.push_back(nb::cast<Tokens>(prompt, false));
      const size_t count = tokens_.back().size();
      prompts_.push_back({nullptr, 0, count == 0 ? &kNone : tokens_.back().data(), count});
    }
  }
}

}  // namespace redline::python

NB_MODULE(_redline, m) {
  using namespace redline::python;
  nb::set_leak_warnings(false);  // a model in a global variable lives until the end, which is no error
  const int32_t version = redline_version_number() / 100;
  if (version != REDLINE_VERSION_NUMBER / 100) {
    const auto dotted = [](int32_t number) {
      return std::to_string(number / 100) + "." + std::to_string(number % 100);
    };
    throw std::runtime_error(std::string("redline: ") + library_path().c_str() + " is version " + dotted(version) +
                             ", and this package needs " + dotted(REDLINE_VERSION_NUMBER / 100));
  }
  m.def("version", redline_version);
  m.def("library_path", library_path);
  m.def("devices", [] {
    return text_of([](char** json, size_t*, redline_error** error) { return redline_devices(json, error); });
  });
  m.def("step_cache_rules", [] {
    return text_of([](char** json, size_t*, redline_error** error) { return redline_step_cache_rules(json, error); });
  });
  nb::class_<Runtime>(m, "Runtime").def_prop_ro("threads", [](const Runtime& self) {
    return redline_runtime_threads(self.get());
  });
  nb::class_<Model> model(m, "Model");
  nb::class_<ImagePipeline> pipeline(m, "ImagePipeline");
  add_options(m);
  m.def(
      "open_runtime",
      [](const RuntimeOptions& options) {
        Runtime runtime;
        call([&](redline_error** error) { return redline_runtime_open(&options.value, runtime.out(), error); });
        return runtime;
      },
      nb::arg("options"));
  add_text(m, model);
  add_embedding(m);
  add_images(m, pipeline);
  add_networks(m);
}
