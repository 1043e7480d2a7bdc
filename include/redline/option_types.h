// The types that rows of the tables of options name, in C and in C++: for redline/text_engine_options.inc and the
// tables beside it. BOOL is an int32_t in C, 0 or 1. TEXT, PATH and the names of enums are const char* in C, where NULL
// stands for the default. Valid in C99.
#ifndef REDLINE_OPTION_TYPES_H
#define REDLINE_OPTION_TYPES_H

#define REDLINE_C_BOOL int32_t
#define REDLINE_C_INT32 int32_t
#define REDLINE_C_INT64 int64_t
#define REDLINE_C_FLOAT float
#define REDLINE_C_DOUBLE double
#define REDLINE_C_TEXT const char*
#define REDLINE_C_PATH const char*
#define REDLINE_C_PRECISION const char*
#define REDLINE_C_POOLING const char*

#define REDLINE_CPP_BOOL bool
#define REDLINE_CPP_INT32 int
#define REDLINE_CPP_INT64 int64_t
#define REDLINE_CPP_FLOAT float
#define REDLINE_CPP_DOUBLE double
#define REDLINE_CPP_TEXT std::string
#define REDLINE_CPP_PATH std::string
#define REDLINE_CPP_PRECISION Precision
#define REDLINE_CPP_POOLING std::optional<Pooling>

#endif
