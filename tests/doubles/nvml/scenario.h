/* The world that the double shows: `key = value` lines of a file, read again when it changes. */
#ifndef DOUBLE_SCENARIO_H
#define DOUBLE_SCENARIO_H

#include <stdbool.h>

#define KEY_FORMAT __attribute__((format(printf, 2, 3)))

/* Reads the file named by ROOFMON_NVML_SCENARIO again if it is another than before. */
void scenario_refresh(void);

/* The value of a key, or NULL (false) where the scenario does not say. Text lives for ever. */
const char *scenario_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool scenario_integer(unsigned long long *value, const char *format, ...) KEY_FORMAT;
bool scenario_real(double *value, const char *format, ...) KEY_FORMAT;

#endif
