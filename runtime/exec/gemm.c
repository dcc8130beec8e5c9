/* gemm.c: the front of tessera/gemm.h. It lives here, not with the devices, because operands are converted as
 * a session's are. */
#include <tessera/gemm.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/tuning.h"
#include "exec/tensor.h"
#include "io/convert.h"

enum { MARK_BYTES = 16 };

/* An operand: its matrix, and the buffers that hold it; several of b alone. */
typedef struct operand {
  tsr_dtype dtype;
  tsr_matrix matrix; /* buffer: of the first copy */
  tsr_buffer **copies;
  int64_t count; /* 0 = it was not asked for */
} operand;

struct tsr_gemm {
  tsr_device *device;
  tsr_gemm_call call;
  tsr_gemm_facts forced; /* family NONE: the device chooses */
  operand operands[TSR_GEMM_OPERANDS];
  tsr_buffer *workspace;
  tsr_buffer *mark; /* what the device's clock starts with */
  int64_t next;     /* copy of b that the next product reads */
  char variant[TSR_VARIANT_BYTES];
};

static const char *const names[TSR_GEMM_OPERANDS] = {"a", "b", "c", "scale", "bias", "gate", "residual"};

void tsr_gemm_options_init(tsr_gemm_options *options) {
  *options = (tsr_gemm_options){.struct_size = sizeof *options};
}

/* ---- creation ---- */

static tsr_status check_sizes(int64_t m, int64_t n, int64_t k, const tsr_gemm_options *options,
                              tsr_error *error) {
  if (m < 1 || n < 1 || k < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "product of m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 ": each must be at least 1",
                    m, n, k);
  if (options->copies < 0 || options->copies > TSR_GEMM_COPIES_MAX)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%" PRId64 " copies of b: expected 0 to %d",
                    options->copies, TSR_GEMM_COPIES_MAX);
  if (options->activate && (unsigned)options->activation >= TSR_UNARY_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "activation %d of a product: at most %d",
                    (int)options->activation, TSR_UNARY_COUNT - 1);
  return TSR_OK;
}

static tsr_status read_types(const tsr_device *device, const tsr_gemm_options *options, tsr_gemm_types *types,
                             tsr_error *error) {
  *types = tsr_gemm_types_of(options->types ? options->types : "f32");
  if (*types == TSR_GEMM_TYPES_COUNT)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "types \"%s\" of a product: expected f32, f64, f32xf16, f32xbf16, f32xi8, f16 or bf16",
                    options->types);
  if (device->gemm[*types].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED,
                    "products in %s: %s does not have them; use another device or types",
                    tsr_gemm_types_name(*types), device->info.name);
  return TSR_OK;
}

/* The host backend has one variant, which no other device has. */
static tsr_status read_variant(const tsr_device *device, tsr_gemm_types types, const char *variant,
                               tsr_gemm_facts *out, tsr_error *error) {
  if (!variant) return TSR_OK;
  TSR_RETURN_IF_FAILED(tsr_gemm_facts_parse(variant, out, error));
  bool host = device->gemm[types].family == TSR_GEMM_HOST;
  if (out->family == TSR_GEMM_NONE || host != (out->family == TSR_GEMM_HOST))
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "GEMM family \"%s\" on %s: it does not have it",
                    tsr_gemm_family_name(out->family), device->info.name);
  return tsr_tuning_check(device, types, out, error);
}

static tsr_status make_operand(tsr_gemm *gemm, tsr_gemm_operand which, tsr_dtype dtype, int64_t rows,
                               int64_t cols, int panel, int64_t count, tsr_error *error) {
  operand *operand = &gemm->operands[which];
  int64_t bytes = tsr_matrix_bytes(panel, dtype, rows, cols);
  if (bytes < 0)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY,
                    "operand %s of %" PRId64 " x %" PRId64
                    ": its bytes do not fit 63 bits; split the product",
                    names[which], rows, cols);
  operand->dtype = dtype;
  operand->matrix = (tsr_matrix){.rows = rows, .cols = cols, .ld = panel ? rows : cols, .panel = panel};
  operand->copies = tsr_calloc((size_t)count, sizeof *operand->copies);
  if (!operand->copies) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a product");
  for (; operand->count < count; operand->count++) {
    tsr_status status =
        tsr_buffer_create(gemm->device, (size_t)bytes, &operand->copies[operand->count], error);
    if (status != TSR_OK) {
      tsr_error_wrap(error, "operand %s of a product", names[which]);
      return status;
    }
  }
  operand->matrix.buffer = operand->copies[0];
  return TSR_OK;
}

static tsr_status make_operands(tsr_gemm *gemm, const tsr_gemm_options *o, int panel, tsr_error *error) {
  const tsr_gemm_call *call = &gemm->call;
  const tsr_dtype a = tsr_gemm_dtype_a(call->types), b = tsr_gemm_dtype_b(call->types),
                  c = tsr_gemm_dtype_c(call->types);
  const int64_t m = call->m, n = call->n, k = call->k;
  const bool ta = call->transpose_a, tb = call->transpose_b, to_weight = ta && !tb;
  const bool fused = o->bias || o->activate || o->gate || o->residual;
  const struct {
    tsr_gemm_operand which;
    bool wanted;
    tsr_dtype dtype;
    int64_t rows, cols;
    int panel;
    int64_t count;
  } rows[] = {
      {TSR_GEMM_OPERAND_A, true, a, ta ? k : m, ta ? m : k, 0, 1},
      {TSR_GEMM_OPERAND_B, true, b, tb ? n : k, tb ? k : n, to_weight ? 0 : panel, o->copies ? o->copies : 1},
      {TSR_GEMM_OPERAND_C, true, c, m, n, to_weight && !fused ? panel : 0, 1},
      {TSR_GEMM_OPERAND_SCALE, b == TSR_I8 && !tb, TSR_F32, 1, n, 0, 1},
      {TSR_GEMM_OPERAND_BIAS, o->bias, c, 1, n, 0, 1},
      {TSR_GEMM_OPERAND_GATE, o->gate, c, m, n, 0, 1},
      {TSR_GEMM_OPERAND_RESIDUAL, o->residual, c, m, n, 0, 1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].wanted)
      TSR_RETURN_IF_FAILED(make_operand(gemm, rows[i].which, rows[i].dtype, rows[i].rows, rows[i].cols,
                                        rows[i].panel, rows[i].count, error));
  return TSR_OK;
}

static int form_of(const tsr_gemm *gemm) {
  return gemm->call.transpose_a + 2 * gemm->call.transpose_b;
}

static const tsr_tuned *find_row(const tsr_gemm *gemm) {
  const tsr_gemm_call *call = &gemm->call;
  if (gemm->forced.family) return NULL;
  return tsr_tuning_find(gemm->device, call->types, form_of(gemm), call->m, call->n, call->k);
}

/* For the tuned variant, and for the default, which takes over if that does not work. */
static tsr_status make_workspace(tsr_gemm *gemm, const tsr_gemm_facts *facts, tsr_error *error) {
  const tsr_gemm_call *call = &gemm->call;
  const tsr_tuned *row = find_row(gemm);
  size_t bytes = tsr_gemm_workspace_bytes(facts, call->types, call->m, call->n, call->k);
  size_t tuned = row ? tsr_gemm_workspace_bytes(&row->facts, call->types, call->m, call->n, call->k) : 0;
  if (tuned > bytes) bytes = tuned;
  return bytes ? tsr_buffer_create(gemm->device, bytes, &gemm->workspace, error) : TSR_OK;
}

/* The buffers are made: the call can name them. */
static void complete_call(tsr_gemm *gemm, const tsr_gemm_options *options) {
  tsr_gemm_call *call = &gemm->call;
  const operand *operands = gemm->operands;
  call->alpha = options->alpha == 0 ? 1 : options->alpha;
  call->beta = options->beta;
  call->a = operands[TSR_GEMM_OPERAND_A].matrix;
  call->b = operands[TSR_GEMM_OPERAND_B].matrix;
  call->c = operands[TSR_GEMM_OPERAND_C].matrix;
  call->scale = operands[TSR_GEMM_OPERAND_SCALE].matrix;
  call->epilogue = (tsr_epilogue){.bias = operands[TSR_GEMM_OPERAND_BIAS].matrix,
                                  .activate = options->activate,
                                  .unary = options->activation,
                                  .gate = operands[TSR_GEMM_OPERAND_GATE].matrix,
                                  .residual = operands[TSR_GEMM_OPERAND_RESIDUAL].matrix};
  call->workspace = gemm->workspace;
  call->facts = gemm->forced.family ? &gemm->forced : NULL;
}

tsr_status tsr_gemm_create(tsr_device *device, int64_t m, int64_t n, int64_t k,
                           const tsr_gemm_options *options, tsr_gemm **out, tsr_error *error) {
  TSR_CHECK_OPTIONS_SIZE(options, tsr_gemm_options);
  tsr_status status = TSR_OK;
  tsr_gemm_types types;
  tsr_gemm_options defaults;
  tsr_gemm_options_init(&defaults);
  if (!options) options = &defaults;
  TSR_RETURN_IF_FAILED(check_sizes(m, n, k, options, error));
  TSR_RETURN_IF_FAILED(read_types(device, options, &types, error));
  tsr_gemm *gemm = tsr_calloc(1, sizeof *gemm);
  if (!gemm) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a product");
  gemm->device = device;
  gemm->call = (tsr_gemm_call){.types = types,
                               .m = m,
                               .n = n,
                               .k = k,
                               .transpose_a = options->transpose_a,
                               .transpose_b = options->transpose_b};
  TSR_TRY(read_variant(device, types, options->variant, &gemm->forced, error));
  const tsr_gemm_facts *facts = gemm->forced.family ? &gemm->forced : &device->gemm[types];
  TSR_TRY(make_operands(gemm, options, facts->panel, error));
  TSR_TRY(make_workspace(gemm, facts, error));
  complete_call(gemm, options);
  *out = gemm;
  return TSR_OK;
done:
  tsr_gemm_destroy(&gemm);
  return status;
}

void tsr_gemm_destroy(tsr_gemm **gemm) {
  if (!gemm || !*gemm) return;
  tsr_device *device = (*gemm)->device;
  for (int i = 0; i < TSR_GEMM_OPERANDS; i++) {
    operand *operand = &(*gemm)->operands[i];
    for (int64_t j = 0; j < operand->count; j++) tsr_buffer_destroy(device, &operand->copies[j]);
    free(operand->copies);
  }
  tsr_buffer_destroy(device, &(*gemm)->workspace);
  tsr_buffer_destroy(device, &(*gemm)->mark);
  free(*gemm);
  *gemm = NULL;
}

/* ---- contents ---- */

static tsr_status check_array(const tsr_gemm *gemm, tsr_gemm_operand which, const tsr_array *array,
                              tsr_error *error) {
  if ((unsigned)which >= TSR_GEMM_OPERANDS || !gemm->operands[which].count)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "operand %s of a product: its options do not ask for it",
                    (unsigned)which < TSR_GEMM_OPERANDS ? names[which] : "?");
  const tsr_matrix *matrix = &gemm->operands[which].matrix;
  TSR_RETURN_IF_FAILED(tsr_array_check(array, error));
  if (array->shape.axes != 2 || array->shape.extent[0] != matrix->rows ||
      array->shape.extent[1] != matrix->cols)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "array for operand %s of a product: %d axes, %" PRId64 " x %" PRId64
                    "; expected 2, %" PRId64 " x %" PRId64,
                    names[which], array->shape.axes, array->shape.extent[0], array->shape.extent[1],
                    matrix->rows, matrix->cols);
  return TSR_OK;
}

static tsr_tensor tensor_of(const operand *operand, tsr_store *store, int64_t copy) {
  const tsr_matrix *matrix = &operand->matrix;
  *store = (tsr_store){.piece_count = 1, .pieces = &operand->copies[copy]};
  return (tsr_tensor){.store = store,
                      .dtype = operand->dtype,
                      .panel = matrix->panel,
                      .rows = matrix->rows,
                      .cols = matrix->cols,
                      .store_rows = matrix->rows,
                      .store_cols = matrix->cols};
}

tsr_status tsr_gemm_write(tsr_gemm *gemm, tsr_gemm_operand operand, const tsr_array *array,
                          tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_array(gemm, operand, array, error));
  for (int64_t copy = 0; copy < gemm->operands[operand].count; copy++) {
    tsr_store store;
    tsr_tensor tensor = tensor_of(&gemm->operands[operand], &store, copy);
    TSR_RETURN_IF_FAILED(tsr_tensor_write(gemm->device, &tensor, array->data, array->dtype, array->stride[0],
                                          array->stride[1], error));
  }
  return TSR_OK;
}

tsr_status tsr_gemm_read(tsr_gemm *gemm, tsr_gemm_operand operand, const tsr_array *array, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_array(gemm, operand, array, error));
  tsr_store store;
  tsr_tensor tensor = tensor_of(&gemm->operands[operand], &store, 0);
  return tsr_tensor_read(gemm->device, &tensor, array->data, array->dtype, array->stride[0], array->stride[1],
                         error);
}

/* ---- runs ---- */

static tsr_status run_all(tsr_gemm *gemm, int64_t count, double *seconds, tsr_error *error) {
  const double begin = tsr_clock_seconds();
  const operand *weights = &gemm->operands[TSR_GEMM_OPERAND_B];
  for (int64_t i = 0; i < count; i++) {
    gemm->call.b.buffer = weights->copies[gemm->next];
    gemm->next = (gemm->next + 1) % weights->count;
    TSR_RETURN_IF_FAILED(tsr_device_gemm(gemm->device, &gemm->call, error));
  }
  TSR_RETURN_IF_FAILED(tsr_device_finish(gemm->device, error));
  *seconds = tsr_clock_seconds() - begin;
  return TSR_OK;
}

/* A provider may tell of its last kernel only, so a small command of our own marks the beginning. */
static tsr_status run_marked(tsr_gemm *gemm, int64_t count, double *seconds, double *device_seconds,
                             tsr_error *error) {
  tsr_device *device = gemm->device;
  tsr_device_span span = {0};
  if (!gemm->mark) TSR_RETURN_IF_FAILED(tsr_buffer_create(device, MARK_BYTES, &gemm->mark, error));
  const double host_begin = tsr_clock_seconds();
  device->ops->span_watch(device, &span);
  tsr_status status = tsr_device_fill_zero(device, gemm->mark, 0, MARK_BYTES, error);
  if (status == TSR_OK) status = run_all(gemm, count, seconds, error);
  const double host = tsr_clock_seconds() - host_begin;
  device->ops->span_watch(device, NULL);
  const double own = tsr_device_span_seconds(device, &span, host);
  if (status == TSR_OK) *device_seconds = own;
  return status;
}

/* Times of the device are switched on for the run alone: they cost others some of theirs. */
static tsr_status run_timed(tsr_gemm *gemm, int64_t count, double *seconds, double *device_seconds,
                            tsr_error *error) {
  const tsr_device_ops *ops = gemm->device->ops;
  if (!ops->timing_set) return run_all(gemm, count, seconds, error);
  TSR_RETURN_IF_FAILED(tsr_device_finish(gemm->device, error));
  TSR_RETURN_IF_FAILED(ops->timing_set(gemm->device, true, error));
  tsr_status status = run_marked(gemm, count, seconds, device_seconds, error);
  const tsr_status off = ops->timing_set(gemm->device, false, status == TSR_OK ? error : NULL);
  return status == TSR_OK ? off : status;
}

tsr_status tsr_gemm_run(tsr_gemm *gemm, int64_t count, double *seconds, double *device_seconds,
                        tsr_error *error) {
  if (count < 1)
    return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT,
                    "%" PRId64 " runs of a product: at least 1 is expected", count);
  if (device_seconds) *device_seconds = 0;
  double host = 0;
  TSR_RETURN_IF_FAILED(device_seconds ? run_timed(gemm, count, &host, device_seconds, error)
                                      : run_all(gemm, count, &host, error));
  if (seconds) *seconds = host;
  return TSR_OK;
}

/* ---- description ---- */

const char *tsr_gemm_variant(tsr_gemm *gemm) {
  const tsr_tuned *row = find_row(gemm);
  tsr_gemm_facts facts = gemm->forced.family ? gemm->forced
                         : row               ? row->facts
                                             : gemm->device->gemm[gemm->call.types];
  facts.tuning = 0;
  return tsr_gemm_facts_format(&facts, gemm->variant, sizeof gemm->variant);
}

tsr_status tsr_gemm_describe(tsr_gemm *gemm, tsr_writer writer, void *user, tsr_error *error) {
  const tsr_gemm_call *call = &gemm->call;
  char line[TSR_VARIANT_BYTES + 64];
  if (!gemm->forced.family)
    return tsr_tuning_write(gemm->device, call->types, form_of(gemm), call->m, call->n, call->k, writer, user,
                            error);
  int length = snprintf(line, sizeof line, "variant       %s (as asked for)\n", tsr_gemm_variant(gemm));
  return writer(user, line, (size_t)length)
             ? tsr_fail(error, TSR_ERROR_IO, "a description could not be written")
             : TSR_OK;
}

double tsr_gemm_flops(const tsr_gemm *gemm) {
  const tsr_gemm_call *call = &gemm->call;
  return 2 * (double)call->m * (double)call->n * (double)call->k;
}
