/* bench_conv.c: convolutions on PoCL beside the product of the same m, n and k, which reads both operands
 * row-major, in turn on the same cores; what counts is the median of the rounds' ratios. Outputs and
 * gradients of the input are compared with the host device's, of the first image; gradients of weights are
 * left to the tests.
 *
 *     bench_conv [--cores N] [--seconds S] [--kind forward|input|weight] [--shape n,c,h,w,k,r,stride]
 *
 * Without --shape the 3x3 layers of ResNet-50 (He et al. 2016, arXiv:1512.03385, table 1) with a batch of 4.
 * Exit code: 0 every ratio of these layers at least 0.7, 1 not reached or a wrong result, 2 wrong usage, 77
 * skipped. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "bench_cores.h"
#include "bench_time.h"
#include "device/device.h"

enum { EXIT_WRONG_USAGE = 2, EXIT_SKIPPED = 77, ROUNDS_MAX = 101, ROUNDS_MIN = 5 };

static const double goal = 0.7;

typedef struct layer {
  int64_t n, c, h, w, k, r, stride;
} layer;

static const layer layers[] = {{4, 64, 56, 56, 64, 3, 1},   {4, 128, 56, 56, 128, 3, 2},
                               {4, 128, 28, 28, 128, 3, 1}, {4, 256, 28, 28, 256, 3, 2},
                               {4, 256, 14, 14, 256, 3, 1}, {4, 512, 14, 14, 512, 3, 2},
                               {4, 512, 7, 7, 512, 3, 1}};
static const char *const kind_names[] = {"forward", "input", "weight"};

typedef struct bench {
  tsr_device *device, *host;
  double seconds;
  tsr_conv_call conv;
  tsr_gemm_call gemm;
} bench;

static tsr_conv_call call_of(const layer *l, tsr_conv_kind kind) {
  tsr_conv_call call = {
      .kind = kind, .dtype = TSR_F32, .groups = 1, .n = l->n, .c = l->c, .h = l->h, .w = l->w, .k = l->k};
  call.r = call.s = l->r;
  call.p = (l->h + 2 * (l->r / 2) - l->r) / l->stride + 1;
  call.q = (l->w + 2 * (l->r / 2) - l->r) / l->stride + 1;
  for (int i = 0; i < 2; i++) {
    call.stride[i] = l->stride;
    call.padding[i] = l->r / 2;
    call.dilation[i] = 1;
  }
  return call;
}

/* m, n and k of the product that a convolution is. */
static void product_of(const tsr_conv_call *call, int64_t *m, int64_t *n, int64_t *k) {
  const int64_t window = call->r * call->s, of_y = call->n * call->p * call->q,
                of_x = call->n * call->h * call->w;
  *m = call->kind == TSR_CONV_INPUT_GRADIENT ? call->c : call->k;
  *n = call->kind == TSR_CONV_FORWARD          ? of_y
       : call->kind == TSR_CONV_INPUT_GRADIENT ? of_x
                                               : call->c * window;
  *k = call->kind == TSR_CONV_FORWARD          ? call->c * window
       : call->kind == TSR_CONV_INPUT_GRADIENT ? call->k * window
                                               : of_y;
}

/* A matrix of small multiples of 1/64, the same on every device. */
static tsr_status make(tsr_device *device, int64_t rows, int64_t cols, tsr_matrix *out, tsr_error *error) {
  float *data;
  *out = (tsr_matrix){.rows = rows, .cols = cols, .ld = cols};
  TSR_RETURN_IF_FAILED(tsr_buffer_create(device, (size_t)(rows * cols) * sizeof *data, &out->buffer, error));
  TSR_RETURN_IF_FAILED(tsr_device_host_wait(device, out->buffer, 0, out->buffer->bytes, TSR_HOST_WRITE,
                                            (void **)&data, error));
  for (int64_t i = 0; i < rows * cols; i++) data[i] = (float)((i * 2654435761 >> 7) % 127 - 63) / 64;
  TSR_RETURN_IF_FAILED(tsr_device_host_end(device, out->buffer, data, error));
  return tsr_device_finish(device, error);
}

static tsr_status make_conv(tsr_device *device, tsr_conv_call *call, tsr_error *error) {
  TSR_RETURN_IF_FAILED(make(device, call->n, call->c * call->h * call->w, &call->x, error));
  TSR_RETURN_IF_FAILED(make(device, call->k, call->c * call->r * call->s, &call->weight, error));
  return make(device, call->n, call->k * call->p * call->q, &call->y, error);
}

static void drop_conv(tsr_device *device, tsr_conv_call *call) {
  tsr_buffer_destroy(device, &call->x.buffer);
  tsr_buffer_destroy(device, &call->weight.buffer);
  tsr_buffer_destroy(device, &call->y.buffer);
}

static const tsr_matrix *result_of(const tsr_conv_call *call) {
  return call->kind == TSR_CONV_FORWARD          ? &call->y
         : call->kind == TSR_CONV_INPUT_GRADIENT ? &call->x
                                                 : &call->weight;
}

static tsr_status map_result(tsr_device *device, const tsr_conv_call *call, float **out, tsr_error *error) {
  tsr_buffer *buffer = result_of(call)->buffer;
  return tsr_device_host_wait(device, buffer, 0, buffer->bytes, TSR_HOST_READ, (void **)out, error);
}

/* A sum of k products, each at most 1: what two orders of summation may differ by. */
static tsr_status compare(bench *b, const layer *l, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_conv_call small = b->conv;
  float *ours, *theirs;
  int64_t m, n, k;
  layer one = *l;
  one.n = 1; /* the host device takes its time */
  product_of(&b->conv, &m, &n, &k);
  if (b->conv.kind == TSR_CONV_WEIGHT_GRADIENT) return TSR_OK; /* a sum over images: the tests look at it */
  small = call_of(&one, b->conv.kind);
  TSR_TRY(make_conv(b->host, &small, error));
  TSR_TRY(tsr_device_conv(b->host, &small, error));
  TSR_TRY(map_result(b->device, &b->conv, &ours, error));
  TSR_TRY(map_result(b->host, &small, &theirs, error));
  for (int64_t i = 0; status == TSR_OK && i < result_of(&small)->cols; i++)
    if (!(fabs((double)ours[i] - (double)theirs[i]) <= 4 * sqrt((double)k) * 0x1p-24 * (double)k))
      status = tsr_fail(error, TSR_ERROR_CHECK_FAILED, "element %lld is %g, not %g", (long long)i,
                        (double)ours[i], (double)theirs[i]);
  tsr_device_host_end(b->device, result_of(&b->conv)->buffer, ours, NULL);
  tsr_device_host_end(b->host, result_of(&small)->buffer, theirs, NULL);
done:
  drop_conv(b->host, &small);
  return status;
}

static tsr_status run_conv(bench *b, int count, tsr_error *error) {
  for (int i = 0; i < count; i++) TSR_RETURN_IF_FAILED(tsr_device_conv(b->device, &b->conv, error));
  return tsr_device_finish(b->device, error);
}

static tsr_status run_gemm(bench *b, int count, tsr_error *error) {
  for (int i = 0; i < count; i++) TSR_RETURN_IF_FAILED(tsr_device_gemm(b->device, &b->gemm, error));
  return tsr_device_finish(b->device, error);
}

static tsr_status measure(bench *b, double *gflops, double *ratio, int *rounds, tsr_error *error) {
  double ratios[ROUNDS_MAX], times[ROUNDS_MAX], begin = now(CLOCK_MONOTONIC);
  int64_t m, n, k;
  product_of(&b->conv, &m, &n, &k);
  const double flops = 2 * (double)m * (double)n * (double)k;
  const int count = flops > 2e9 ? 1 : (int)(2e9 / flops) + 1;
  TSR_RETURN_IF_FAILED(run_gemm(b, 1, error));
  for (*rounds = 0;
       *rounds < ROUNDS_MIN || (*rounds < ROUNDS_MAX && now(CLOCK_MONOTONIC) - begin < b->seconds);
       ++*rounds) {
    double first = now(CLOCK_MONOTONIC);
    TSR_RETURN_IF_FAILED(run_conv(b, count, error));
    double second = now(CLOCK_MONOTONIC);
    TSR_RETURN_IF_FAILED(run_gemm(b, count, error));
    double end = now(CLOCK_MONOTONIC);
    times[*rounds] = (second - first) / count;
    ratios[*rounds] = (end - second) / (second - first);
  }
  *gflops = flops / median(times, *rounds) * 1e-9;
  *ratio = median(ratios, *rounds);
  return TSR_OK;
}

static tsr_status bench_layer(bench *b, const layer *l, tsr_conv_kind kind, double *ratio, tsr_error *error) {
  tsr_status status = TSR_OK;
  int64_t m, n, k;
  double gflops = 0;
  int rounds = 0;
  b->conv = call_of(l, kind);
  product_of(&b->conv, &m, &n, &k);
  b->gemm = (tsr_gemm_call){.types = TSR_GEMM_TYPES_F32, .m = m, .n = n, .k = k, .alpha = 1};
  TSR_TRY(make_conv(b->device, &b->conv, error));
  TSR_TRY(make(b->device, m, k, &b->gemm.a, error));
  TSR_TRY(make(b->device, k, n, &b->gemm.b, error));
  TSR_TRY(make(b->device, m, n, &b->gemm.c, error));
  TSR_TRY(run_conv(b, 1, error));
  TSR_TRY(compare(b, l, error));
  TSR_TRY(measure(b, &gflops, ratio, &rounds, error));
  printf("%-8s %3lld %5lld %4lld %4lld %5lld %3lld %7lld %9.1f %8.2f %7d\n", kind_names[kind],
         (long long)l->n, (long long)l->c, (long long)l->h, (long long)l->w, (long long)l->k, (long long)l->r,
         (long long)l->stride, gflops, *ratio, rounds);
done:
  drop_conv(b->device, &b->conv);
  tsr_buffer_destroy(b->device, &b->gemm.a.buffer);
  tsr_buffer_destroy(b->device, &b->gemm.b.buffer);
  tsr_buffer_destroy(b->device, &b->gemm.c.buffer);
  return status;
}

static tsr_status bench_all(bench *b, const layer *own, int only, double *lowest, tsr_error *error) {
  const int count = own ? 1 : (int)(sizeof layers / sizeof *layers);
  printf("%-8s %3s %5s %4s %4s %5s %3s %7s %9s %8s %7s\n", "kind", "n", "c", "h", "w", "k", "r", "stride",
         "GFLOPS", "of gemm", "rounds");
  for (int i = 0; i < count; i++)
    for (int kind = 0; kind < 3; kind++) {
      double ratio;
      if (only >= 0 && kind != only) continue;
      TSR_RETURN_IF_FAILED(bench_layer(b, own ? own : &layers[i], (tsr_conv_kind)kind, &ratio, error));
      if (ratio < *lowest) *lowest = ratio;
    }
  return TSR_OK;
}

static bool read_layer(const char *text, layer *out) {
  long long v[7];
  char rest;
  if (sscanf(text, "%lld,%lld,%lld,%lld,%lld,%lld,%lld%c", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
             &rest) != 7)
    return false;
  *out = (layer){v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
  return v[0] > 0 && v[1] > 0 && v[2] > 0 && v[3] > 0 && v[4] > 0 && v[5] > 0 && v[5] % 2 && v[6] > 0;
}

static int kind_of(const char *text) {
  for (int i = 0; i < 3; i++)
    if (strcmp(text, kind_names[i]) == 0) return i;
  return -1;
}

int main(int argc, char **argv) {
  static const struct option longs[] = {{"cores", 1, NULL, 'c'},
                                        {"seconds", 1, NULL, 's'},
                                        {"kind", 1, NULL, 'k'},
                                        {"shape", 1, NULL, 'p'},
                                        {0}};
  bench b = {.seconds = 2};
  int cores = 1, only = -1;
  layer own;
  bool has_own = false, good = true;
  for (int option; good && (option = getopt_long(argc, argv, "", longs, NULL)) != -1;) switch (option) {
    case 'c': good = (cores = atoi(optarg)) > 0; break;
    case 's': good = (b.seconds = atof(optarg)) > 0; break;
    case 'k': good = (only = kind_of(optarg)) >= 0; break;
    case 'p': good = has_own = read_layer(optarg, &own); break;
    default: good = false;
    }
  if (!good || optind < argc) {
    fprintf(stderr, "usage: bench_conv [--cores N] [--seconds S] [--kind forward|input|weight] "
                    "[--shape n,c,h,w,k,r,stride], r odd\n");
    return EXIT_WRONG_USAGE;
  }
  bench_cores_take(cores, argv);

  tsr_context *context = NULL;
  tsr_error error = {0};
  double lowest = HUGE_VAL;
  tsr_status status = tsr_context_create(NULL, &context, &error);
  if (status == TSR_OK && tsr_device_open(context, "pocl", NULL, &b.device, &error) != TSR_OK) {
    fprintf(stderr, "bench_conv: skipped: %s\n", error.message);
    tsr_context_destroy(&context);
    return EXIT_SKIPPED;
  }
  if (status == TSR_OK) status = tsr_device_open(context, "host", NULL, &b.host, &error);
  if (status == TSR_OK) status = bench_all(&b, has_own ? &own : NULL, only, &lowest, &error);
  if (status != TSR_OK) fprintf(stderr, "bench_conv: %s\n", error.message);
  tsr_device_close(&b.device);
  tsr_device_close(&b.host);
  tsr_context_destroy(&context);
  if (status != TSR_OK) return 1;
  printf("lowest %.2f of the product's speed; goal %.2f: %s\n", lowest, goal,
         lowest >= goal ? "reached" : "NOT reached");
  return lowest >= goal || has_own ? 0 : 1;
}
