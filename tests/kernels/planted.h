/* planted.h: kernels with a mistake in them, each of which a variant's self-test must find. */
#ifndef TSR_TESTS_KERNELS_PLANTED_H
#define TSR_TESTS_KERNELS_PLANTED_H

#include "fixture.h"

#include <sys/stat.h>

typedef struct mistake {
  const tsr_gemm_facts *variant;
  tsr_gemm_types types;
  const char *what, *file, *right, *wrong;
} mistake;

static char *read_kernel(const char *file) {
  char path[1024];
  snprintf(path, sizeof path, "%s/cl_kernels/%s", TSR_SOURCE_ROOT, file);
  FILE *from = fopen(path, "rb");
  if (!from) fail_msg("%s: it cannot be read", path);
  char *text = calloc(1, 1 << 16);
  if (fread(text, 1, (1 << 16) - 1, from) == 0) fail_msg("%s: it is empty", path);
  fclose(from);
  return text;
}

/* A copy of the file in which what is right once has become wrong. */
static void plant(const mistake *m, const char *path) {
  char *text = read_kernel(m->file), *at = strstr(text, m->right);
  if (!at || strstr(at + 1, m->right)) fail_msg("%s: \"%s\" is not there once", m->file, m->right);
  FILE *to = fopen(path, "wb");
  fprintf(to, "%.*s%s%s", (int)(at - text), text, m->wrong, at + strlen(m->right));
  fclose(to);
  free(text);
}

/* The first use of a variant tests it: that must fail, since a wrong number came out. */
static void expect_refusal(fixture *f, const char *folder, const mistake *m) {
  tsr_error error = {0};
  tsr_context *context = NULL, *own = f->context;
  assert_ok(tsr_context_create(TSR_CONTEXT_OPTIONS(.log = keep_log, .log_user = f, .cache_folder = f->folder,
                                                   .kernel_folder = folder),
                               &context, &error),
            &error);
  f->context = context;
  tsr_device *device = open_device(f, test_selector(), TSR_DEVICE_OPTIONS(.gemm = "reference"));
  tsr_matrix matrix = {.rows = 8, .cols = 8, .ld = 8};
  assert_ok(tsr_buffer_create(device, 1024, &matrix.buffer, &error), &error);
  tsr_matrix c = matrix;
  c.offset = 128;
  const tsr_gemm_call call = {.types = m->types,
                              .m = 8,
                              .n = 8,
                              .k = 8,
                              .alpha = 1,
                              .a = matrix,
                              .b = matrix,
                              .c = c,
                              .facts = m->variant};
  tsr_status status = tsr_device_gemm(device, &call, &error);
  if (status != TSR_ERROR_DEVICE || !strstr(error.message, "expected"))
    fail_msg("%s: %s; but the status is %d: %s", m->file, m->what, (int)status, error.message);
  tsr_buffer_destroy(device, &matrix.buffer);
  tsr_device_close(&device);
  f->context = own;
  tsr_context_destroy(&context);
}

static void expect_refusals(fixture *f, const mistake *mistakes, size_t count) {
  char folder[512], path[1024];
  snprintf(folder, sizeof folder, "%s/kernels", f->folder);
  assert_int_equal(mkdir(folder, 0700), 0);
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, mistakes[i].file);
    plant(&mistakes[i], path);
    expect_refusal(f, folder, &mistakes[i]);
    remove_file(path);
  }
  rmdir(folder);
}

#endif
