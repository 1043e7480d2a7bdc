/* Plays an NVIDIA driver for tests: FAKE_CUDA is "version,GPUs,major,minor" of compute capability, such as
   "13000,1,9,0", and after these the free MiB of each GPU, of 80 GiB; 0: not even a context fits. Or "fails", a
   driver that does not start. The names and numbers are those of cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int value(int index) {
  const char* text = getenv("FAKE_CUDA");
  int v[5] = {0, 0, 0, 0, 80 << 10};
  if (text != NULL) sscanf(text, "%d,%d,%d,%d,%d", &v[0], &v[1], &v[2], &v[3], &v[4]);
  return v[index];
}
static int fails(void) {
  const char* text = getenv("FAKE_CUDA");
  return text != NULL && strcmp(text, "fails") == 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return fails() ? 999 : value(1) == 0 ? 100 : 0;
}
int cuDriverGetVersion(int* version) {
  *version = fails() ? 13000 : value(0);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = value(1);
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int device) {
  snprintf(name, (size_t)bytes, "Fake GPU %d", device);
  return 0;
}
int cuDeviceGetAttribute(int* result, int attribute, int device) {
  (void)device;
  *result = attribute == 75 ? value(2) : attribute == 76 ? value(3) : 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  *bytes = (size_t)80 << 30;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  (void)device;
  static int any;
  *context = &any;
  return value(4) == 0 ? 2 : 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  (void)context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  (void)context;
  return 0;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = (size_t)value(4) << 20;
  *total = (size_t)80 << 30;
  return 0;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == 999 ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_NO_DEVICE";
  return 0;
}
