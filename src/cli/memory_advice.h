// Advice for models that do not fit into the memory of this machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "redline/image.h"

namespace redline::cli {

/// Returns the bytes that this process can still allocate: the minimum of what the machine, the control group (version
/// 2) and `ulimit -v` leave.
int64_t available_memory();

/// Returns the bytes of the weights in the files of a model; 0 if they cannot be read, or for names that are not files.
int64_t weight_bytes_of(const std::string& path);

/// Returns a warning for a model that is about to be opened if its weights take more than `available`; else "". Most
/// systems reserve memory without checking it, so that the program would later be killed without a message.
std::string memory_warning(const std::string& path, int64_t weight_bytes, int64_t parameters, int64_t available);
/// Returns this warning for the files of a model; "" if they cannot be read, or for names that are not files.
std::string memory_warning(const std::string& path);

/// Returns a warning before images are made if `arena`, the bytes of the arenas at the largest size and batch, takes
/// more than `available` for `images` of `width` x `height`; else "".
std::string image_memory_warning(int64_t arena, const ImageOptions& options, int64_t images, int64_t width,
                                 int64_t height, int64_t available);

/// Adds the available memory and a context that fits to an out_of_memory error; returns any other status unchanged.
Status advise_text_memory(Status status, const std::string& path, int64_t context);
/// Adds this advice for images of `width` x `height` pixels (0: the model's own size).
Status advise_image_memory(Status status, const std::string& path, const ImageOptions& options, int64_t width,
                           int64_t height);

}  // namespace redline::cli
