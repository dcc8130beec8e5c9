/* tessera/tuning.h: which variant of a kernel a product runs, by rows that were measured; and the variants
 * that there are, for measuring more.
 *
 * A row ("tessera.tuning/1", docs/schemas.md) says which variant was the fastest for one shape on one kind of
 * device. The user has his own in the context's tuning folder; others are built into the library
 * (cl_kernels/tuning/), of which there is none yet.
 *
 * Of all rows for its element types that the device can use, a product takes
 *   1. one of the same transposes, if there is one;
 *   2. of these one of the nearest shape, by |ln m/m'| + |ln n/n'| + |ln k/k'|, in whole steps of ln 4:
 * within a factor of 4 in all, one is as near as another;
 *   3. of these one of the most specific level: device, architecture, vendor, all;
 *   4. of these the nearest shape, exactly;
 *   5. of these the user's, else one that is built in; the first, if there are several.
 * So a row that was measured here goes over what is known of such devices in general, but not for a product
 * of quite another size. A row whose variant the device does not have, breaks a limit there, or wants weights
 * stored in another form is passed over; without any row it is the backend's default.
 *
 * A variant is text: a family and its parameters, "panel tile_m=6 tile_n=16 ...".
 *
 * Thread safety: a space belongs to one thread at a time; the rest as the device. */
#ifndef TESSERA_TUNING_H
#define TESSERA_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/device.h>
#include <tessera/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TSR_VARIANT_BYTES = 512 };

/* A product, as rows and searches see it. */
typedef struct tsr_tuning_product {
  char types[16]; /* "f32", ...: see tessera/gemm.h */
  char form[4];   /* "nn", "nt", "tn", "tt": whether a and b are transposed */
  int64_t m, n, k;
} tsr_tuning_product;

typedef struct tsr_tuning_row {
  char vendor[64], architecture[64], device[128]; /* what it is for; "" = any */
  tsr_tuning_product product;                     /* that was measured */
  char variant[TSR_VARIANT_BYTES];
  double gflops;
  char driver[128], date[32], version[16]; /* of the measurement: driver, day, Tessera */
} tsr_tuning_row;

/* Fills vendor, architecture, device and driver. */
void tsr_tuning_identify(const tsr_device *device, tsr_tuning_row *out);

/* Writes rows to a document, beside those that are there, in whose place they go where what they are for and
 * the product are the same. path NULL: <the tuning folder>/<name of the first row's device>.json; the folder
 * is made. Under a temporary name, then renamed, under a lock: of two that save at once neither's are lost. A
 * link stays a link; an empty file has no rows; what is no regular file is written as it is. Errors:
 * INVALID_ARGUMENT (no rows, or one that could not be read again; no path, and no tuning folder), IO, FORMAT
 * (what is there is damaged), OUT_OF_MEMORY. */
tsr_status tsr_tuning_save(tsr_context *context, const char *path, const tsr_tuning_row *rows, size_t count,
                           tsr_error *error);
/* Whether rows could be written there, asked before they are searched; `like` is what tsr_tuning_identify
 * fills. Nothing is made. Errors: as tsr_tuning_save. */
tsr_status tsr_tuning_save_check(tsr_context *context, const char *path, const tsr_tuning_row *like,
                                 tsr_error *error);

/* Text: lines for people. */
typedef enum tsr_tuning_format { TSR_TUNING_TEXT, TSR_TUNING_JSON } tsr_tuning_format;

/* Writes which rows there are for the product, which are passed over and why, which one is taken, and the
 * variant; as JSON it is "tessera.explain/1". Errors: INVALID_ARGUMENT (the product), UNSUPPORTED (types that
 * the device does not have), IO, OUT_OF_MEMORY. */
tsr_status tsr_tuning_explain(const tsr_device *device, const tsr_tuning_product *product,
                              tsr_tuning_format format, tsr_writer writer, void *user, tsr_error *error);

/* The variants that may be tried for a product on a device: every family that its backend offers, each
 * parameter with a list of values, within limits (local memory, work-group size, registers). */
typedef struct tsr_tuning_space tsr_tuning_space;

typedef struct tsr_tuning_space_options {
  size_t struct_size;
  bool any_panel; /* also variants that want weights stored in another form: their rows are used only where
                     that form is the device's default */
} tsr_tuning_space_options;
void tsr_tuning_space_options_init(tsr_tuning_space_options *options);
#define TSR_TUNING_SPACE_OPTIONS(...)                                                                        \
  (&(tsr_tuning_space_options){.struct_size = sizeof(tsr_tuning_space_options), __VA_ARGS__})

/* Gives *out. device is borrowed until destroy. options may be NULL. Errors: INVALID_ARGUMENT (the product),
 * UNSUPPORTED (types that the device does not have), OUT_OF_MEMORY. */
tsr_status tsr_tuning_space_create(const tsr_device *device, const tsr_tuning_product *product,
                                   const tsr_tuning_space_options *options, tsr_tuning_space **out,
                                   tsr_error *error);
void tsr_tuning_space_destroy(tsr_tuning_space **space);

/* Where a search begins: what the product runs now (index 0, at least this one), which is a row's variant or
 * the device's default; then that default, then the backend's other families. Borrowed; lives as long as the
 * space. NULL beyond the last. */
const char *tsr_tuning_space_start(const tsr_tuning_space *space, size_t index);

/* The variant that differs from `variant` in its axis-th parameter alone, which has the index-th value of its
 * list; parameters that depend on it follow. NOT_FOUND: no such value (index 0: no such axis); UNSUPPORTED:
 * it breaks a limit: error says by which value; INVALID_ARGUMENT: `variant` is none. */
tsr_status tsr_tuning_space_step(const tsr_tuning_space *space, const char *variant, size_t axis,
                                 size_t index, char out[TSR_VARIANT_BYTES], tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
