/* device/tuning.h: the tuning rows that are in force on a device; see tessera/tuning.h. */
#ifndef TSR_DEVICE_TUNING_H
#define TSR_DEVICE_TUNING_H

#include <tessera/tuning.h>

#include "base/json.h"
#include "device/device.h"
#include "device/kernel_source.h"

/* What a row is for, most specific first. */
typedef enum tsr_tuning_level {
  TSR_TUNING_DEVICE,
  TSR_TUNING_ARCHITECTURE,
  TSR_TUNING_VENDOR,
  TSR_TUNING_ALL,
  TSR_TUNING_LEVELS
} tsr_tuning_level;

enum { TSR_TUNING_FILE_BYTES = 256 };
#define TSR_TUNING_SCHEMA "tessera.tuning/1"

/* A row as it was read. */
typedef struct tsr_tuned {
  tsr_tuning_row row;
  tsr_gemm_facts facts; /* row.variant */
  tsr_gemm_types types;
  int form; /* transpose_a + 2 * transpose_b */
  tsr_tuning_level level;
  bool user;                        /* from the user's folder, else built in */
  char file[TSR_TUNING_FILE_BYTES]; /* the end of its path */
  bool usable;                      /* the device has the variant, and stores weights as it wants them */
  bool refused;                     /* its self-test failed on this device */
} tsr_tuned;

typedef struct tsr_tuned_list {
  tsr_tuned *items;
  size_t count, capacity;
} tsr_tuned_list;

/* Rows that match a device, the user's first; those that are usable are in force. */
typedef struct tsr_tuning {
  tsr_tuned_list rows;
  tsr_gemm_family forced; /* NONE: any */
} tsr_tuning;

/* Once a device's gemm[] is chosen: reads the rows, and notes in gemm[].tuning which are in force. family:
 * the one that was forced; NULL = any. built_in: files, ended by a NULL name, of which those in JSON have
 * rows. A file that is damaged is a warning. Errors: OUT_OF_MEMORY. */
tsr_status tsr_tuning_load(tsr_device *device, const char *family, const tsr_kernel_source *built_in,
                           tsr_error *error);
void tsr_tuning_free(tsr_device *device);

/* Whether the device has the row's variant, and stores weights as that wants them. Errors: UNSUPPORTED, with
 * the reason. */
tsr_status tsr_tuning_use(const tsr_device *device, const tsr_tuned *row, tsr_gemm_family forced,
                          tsr_error *error);
/* The row for a product, by the rule of tessera/tuning.h; NULL: it takes the default, because there is none,
 * or because the variant of the one that it takes was refused. */
tsr_tuned *tsr_tuning_find(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                           int64_t k);
/* Distance of a row's shape from a product's. */
double tsr_tuning_distance(const tsr_tuned *row, int64_t m, int64_t n, int64_t k);
/* tsr_tuning_explain, for a product that was read. */
tsr_status tsr_tuning_write(const tsr_device *device, tsr_gemm_types types, int form, int64_t m, int64_t n,
                            int64_t k, tsr_writer writer, void *user, tsr_error *error);

/* Types and transposes of a product whose sizes are at least 1. Errors: INVALID_ARGUMENT. */
tsr_status tsr_tuning_product_read(const tsr_tuning_product *product, tsr_gemm_types *types, int *form,
                                   tsr_error *error);
const char *tsr_tuning_form_name(int form);
const char *tsr_tuning_level_name(tsr_tuning_level level);

/* Appends the rows of a document, which `file` names; an empty one has none. Errors: FORMAT with the place,
 * MISMATCH, OUT_OF_MEMORY; then nothing is appended. */
tsr_status tsr_tuned_list_parse(tsr_tuned_list *list, const char *text, size_t bytes, const char *file,
                                tsr_error *error);
/* The user's rows, then those that are built in; a file that is damaged is a warning. */
tsr_status tsr_tuned_list_read(tsr_tuned_list *list, tsr_context *context, const tsr_kernel_source *built_in,
                               tsr_error *error);
void tsr_tuned_list_free(tsr_tuned_list *list);

/* Whether a variant keeps the limits of its family on this device: local memory, work-group size, registers.
 * Errors: UNSUPPORTED, with the parameter, its value and the limit. */
tsr_status tsr_tuning_check(const tsr_device *device, tsr_gemm_types types, const tsr_gemm_facts *facts,
                            tsr_error *error);
/* The backend's variant of the family of `facts`, if it has the parameters that no search changes (the form
 * of stored weights, what the compiler can do) as facts has them. */
bool tsr_tuning_offered(const tsr_device *device, tsr_gemm_types types, const tsr_gemm_facts *facts);

#endif
