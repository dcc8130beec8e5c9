/* mpi_digits: a small convolutional network, trained on images, its channels split over the ranks.
 *
 * Three convolutions, each with ReLU, two poolings, and one window over all that is left, which is the
 * classifier:
 *
 *     [B,1,8,8] -> 16 x 3x3 -> 24 x 3x3, pool 2 -> 24 x 3x3, pool 2 -> 10 x 2x2 -> [B,10,1,1]
 *
 * The output channels of the second convolution lie where this program says, later ranks having more of them;
 * how the others are split, and what is exchanged, is Tessera's to find. Training is plain gradient descent
 * on the squared distance to 1 for the right digit and 0 for the others. Then the parameters are gathered,
 * and a second graph, of the forward pass alone, is asked about images that were not seen.
 *
 *   cc mpi_digits.c $(pkg-config --cflags --libs tessera mpich) -lm -o mpi_digits
 *   mpiexec -n 3 ./mpi_digits FOLDER [EPOCHS]      with images.idx3-ubyte and labels.idx1-ubyte in FOLDER
 *
 * Exit code 0: more than 95 % of the images that were held out are right. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/mpi.h>
#include <tessera/tessera.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, DIGITS = 10, IMAGES = 1797, HELD_OUT = 397, BATCH = 10, LAYERS = 4 };
static const double RATE = 0.2, ENOUGH = 0.95;

/* An error ends the work of this rank. Calls marked [C] in the headers fail on every rank together; what
 * fails on one rank alone, a lack of memory for example, ends it, and mpiexec ends the others. */
#define TRY(call)                                                                                            \
  do                                                                                                         \
    if ((status = (call)) != TSR_OK) goto done;                                                              \
  while (0)

/* ---- images ---- */

static float pixels[IMAGES][PIXELS];
static int labels[IMAGES];

/* `count` bytes after the head of an IDX file. */
static int read_bytes(const char *folder, const char *name, long head, unsigned char *out, size_t count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  int good = file && fseek(file, head, SEEK_SET) == 0 && fread(out, 1, count, file) == count;
  if (file) fclose(file);
  if (!good) fprintf(stderr, "mpi_digits: cannot read %zu bytes of %s\n", count, path);
  return good;
}

static int read_images(const char *folder) {
  static unsigned char bytes[IMAGES][PIXELS], digits[IMAGES];
  if (!read_bytes(folder, "images.idx3-ubyte", 16, bytes[0], sizeof bytes) ||
      !read_bytes(folder, "labels.idx1-ubyte", 8, digits, sizeof digits))
    return 0;
  for (int i = 0; i < IMAGES; i++) {
    for (int j = 0; j < PIXELS; j++) pixels[i][j] = (float)bytes[i][j] / 16;
    labels[i] = digits[i];
  }
  return 1;
}

/* ---- the network ---- */

typedef struct layer {
  int64_t in, out, window, padding;
  int pooled;
} layer;
static const layer layers[LAYERS] = {
    {1, 16, 3, 1, 0}, {16, 24, 3, 1, 1}, {24, 24, 3, 1, 1}, {24, DIGITS, 2, 0, 0}};

static int64_t weight_count(int i) {
  return layers[i].out * layers[i].in * layers[i].window * layers[i].window;
}

typedef struct network {
  tsr_graph *graph;
  tsr_value x, y, target, loss, weights[LAYERS], biases[LAYERS];
} network;

static tsr_status add_layer(network *n, int i, tsr_value *y, tsr_error *error) {
  const layer *l = &layers[i];
  const tsr_shape window = {.axes = 4, .extent = {l->out, l->in, l->window, l->window}};
  const tsr_shape channels = tsr_shape_of(1, l->out, 0);
  const tsr_conv_options *options = TSR_CONV_OPTIONS(.padding = {l->padding, l->padding});
  char name[8];
  snprintf(name, sizeof name, "w%d", i + 1);
  tsr_status status = tsr_graph_parameter(n->graph, name, TSR_F32, &window, &n->weights[i], error);
  snprintf(name, sizeof name, "b%d", i + 1);
  if (status == TSR_OK)
    status = tsr_graph_parameter(n->graph, name, TSR_F32, &channels, &n->biases[i], error);
  if (status == TSR_OK) status = tsr_graph_conv(n->graph, *y, n->weights[i], n->biases[i], options, y, error);
  if (status == TSR_OK && i < LAYERS - 1) status = tsr_graph_unary(n->graph, TSR_UNARY_RELU, *y, y, error);
  if (status == TSR_OK && l->pooled)
    status = tsr_graph_pool(n->graph, *y, TSR_POOL_OPTIONS(.window = {2, 2}), y, error);
  return status;
}

/* Gradients of the loss, and at the end of a step every parameter less RATE of its own. */
static tsr_status add_training(network *n, tsr_error *error) {
  tsr_value parameters[2 * LAYERS], gradients[2 * LAYERS], next;
  memcpy(parameters, n->weights, sizeof n->weights);
  memcpy(parameters + LAYERS, n->biases, sizeof n->biases);
  tsr_status status = tsr_graph_squared_error(n->graph, n->y, n->target, &n->loss, error);
  if (status == TSR_OK) status = tsr_graph_output(n->graph, "loss", n->loss, error);
  if (status == TSR_OK)
    status = tsr_graph_gradients(n->graph, n->loss, TSR_NO_VALUE, parameters, 2 * LAYERS, gradients, error);
  for (int i = 0; i < 2 * LAYERS && status == TSR_OK; i++) {
    status = tsr_graph_add(n->graph, 1, parameters[i], -RATE, gradients[i], &next, error);
    if (status == TSR_OK) status = tsr_graph_assign(n->graph, parameters[i], next, error);
  }
  return status;
}

/* Every rank has all images and answers; the second layer's output channels are cut at offsets. */
static tsr_status build(tsr_context *context, int64_t images, int trains, int parts, const int64_t *offsets,
                        network *n, tsr_error *error) {
  const tsr_shape image = {.axes = 4, .extent = {images, 1, SIDE, SIDE}};
  const tsr_shape answer = {.axes = 4, .extent = {images, DIGITS, 1, 1}};
  const tsr_layout whole = tsr_layout_replicate(), cut = tsr_layout_shard(0, parts, offsets);
  tsr_status status = tsr_graph_create(context, &n->graph, error);
  if (status == TSR_OK) status = tsr_graph_input(n->graph, "x", TSR_F32, &image, &n->x, error);
  if (status == TSR_OK) status = tsr_graph_pin(n->graph, n->x, &whole, error);
  n->y = n->x;
  for (int i = 0; i < LAYERS && status == TSR_OK; i++) status = add_layer(n, i, &n->y, error);
  if (status == TSR_OK) status = tsr_graph_pin(n->graph, n->weights[1], &cut, error);
  if (status == TSR_OK) status = tsr_graph_output(n->graph, "y", n->y, error);
  if (status == TSR_OK) status = tsr_graph_pin(n->graph, n->y, &whole, error);
  if (status != TSR_OK || !trains) return status;
  status = tsr_graph_input(n->graph, "target", TSR_F32, &answer, &n->target, error);
  if (status == TSR_OK) status = tsr_graph_pin(n->graph, n->target, &whole, error);
  return status == TSR_OK ? add_training(n, error) : status;
}

/* ---- running it ---- */

/* What the ranks have: a plan is made by one of them, and run by all. */
typedef struct team {
  tsr_context *context;
  tsr_group *group;
  tsr_device *device;
  tsr_cluster *cluster;
  int rank, size;
} team;

static tsr_status start(const team *team, const network *n, tsr_plan **plan, tsr_session **session,
                        tsr_error *error) {
  tsr_status status = TSR_OK;
  if (team->rank == 0) status = tsr_plan_create(n->graph, team->cluster, NULL, plan, error);
  status = tsr_group_agree(team->group, status, error, error);
  if (status == TSR_OK) status = tsr_plan_share(team->group, team->context, plan, error);
  if (status == TSR_OK) status = tsr_session_create(team->group, *plan, &team->device, 1, session, error);
  return status;
}

static tsr_array view(float *data, int64_t e0, int64_t e1, int64_t e2, int64_t e3) {
  const tsr_shape shape = {.axes = 4, .extent = {e0, e1, e2, e3}};
  return tsr_array_dense(data, TSR_F32, &shape);
}

/* Uniform with the variance that keeps the size of what passes through (He et al. 2015, arXiv:1502.01852);
 * the last begins small, because answers are between 0 and 1. */
static tsr_status add_first_parameters(tsr_source *source, tsr_error *error) {
  tsr_status status = TSR_OK;
  for (int i = 0; i < LAYERS && status == TSR_OK; i++) {
    char name[8];
    const double most =
        (i == LAYERS - 1 ? 0.2 : 1) * sqrt(6.0 * (double)layers[i].out / (double)weight_count(i));
    snprintf(name, sizeof name, "w%d", i + 1);
    status = tsr_source_add_random(source, name, TSR_RANDOM_UNIFORM, 1, -most, most, error);
    snprintf(name, sizeof name, "b%d", i + 1);
    if (status == TSR_OK) status = tsr_source_add_constant(source, name, 0, error);
  }
  return status;
}

/* One step on BATCH images from `first` on, of those that are not held out. */
static tsr_status train_on(tsr_session *session, const network *n, int rank, int first, float *loss,
                           tsr_error *error) {
  static float targets[BATCH][DIGITS];
  for (int i = 0; i < BATCH; i++)
    for (int d = 0; d < DIGITS; d++) targets[i][d] = d == labels[first + i];
  const tsr_shape scalar = tsr_shape_of(0, 0, 0);
  const tsr_array x = view(pixels[first], BATCH, 1, SIDE, SIDE),
                  target = view(targets[0], BATCH, DIGITS, 1, 1),
                  out = tsr_array_dense(loss, TSR_F32, &scalar);
  tsr_status status = tsr_session_bind(session, rank, n->x, &x, error);
  if (status == TSR_OK) status = tsr_session_bind(session, rank, n->target, &target, error);
  if (status == TSR_OK) status = tsr_session_start(session, error);
  if (status == TSR_OK) status = tsr_session_wait(session, error);
  return status == TSR_OK ? tsr_session_gather(session, n->loss, &out, error) : status;
}

/* The parameters of one session become the contents of a source, in `memory`. */
static tsr_status take_parameters(tsr_session *session, const network *n, float *memory, tsr_source *source,
                                  tsr_error *error) {
  tsr_status status = TSR_OK;
  for (int i = 0; i < LAYERS && status == TSR_OK; i++) {
    const layer *l = &layers[i];
    const tsr_shape channels = tsr_shape_of(1, l->out, 0);
    const tsr_array w = view(memory, l->out, l->in, l->window, l->window),
                    b = tsr_array_dense(memory + weight_count(i), TSR_F32, &channels);
    char name[8];
    memory += weight_count(i) + l->out;
    status = tsr_session_gather(session, n->weights[i], &w, error);
    if (status == TSR_OK) status = tsr_session_gather(session, n->biases[i], &b, error);
    snprintf(name, sizeof name, "w%d", i + 1);
    if (status == TSR_OK) status = tsr_source_add_array(source, name, &w, error);
    snprintf(name, sizeof name, "b%d", i + 1);
    if (status == TSR_OK) status = tsr_source_add_array(source, name, &b, error);
  }
  return status;
}

static int count_right(const float *answers) {
  int right = 0;
  for (int i = 0; i < HELD_OUT; i++) {
    int best = 0;
    for (int d = 1; d < DIGITS; d++)
      if (answers[i * DIGITS + d] > answers[i * DIGITS + best]) best = d;
    right += best == labels[IMAGES - HELD_OUT + i];
  }
  return right;
}

/* The held-out images, by the parameters of a session that was trained. */
static tsr_status examine(const team *team, tsr_session *trained, const network *n, const int64_t *offsets,
                          int *right, tsr_error *error) {
  tsr_status status = TSR_OK;
  network forward = {0};
  tsr_plan *plan = NULL;
  tsr_session *session = NULL;
  tsr_source *source = NULL;
  size_t count = 0;
  const int rank = team->rank;
  for (int i = 0; i < LAYERS; i++) count += (size_t)(weight_count(i) + layers[i].out);
  float *memory = malloc(count * sizeof *memory), *answers = malloc(sizeof *answers * HELD_OUT * DIGITS);
  const tsr_array x = view(pixels[IMAGES - HELD_OUT], HELD_OUT, 1, SIDE, SIDE),
                  y = view(answers, HELD_OUT, DIGITS, 1, 1);
  if (!memory || !answers) {
    status = TSR_ERROR_OUT_OF_MEMORY;
    snprintf(error->message, sizeof error->message, "no memory for the parameters");
    goto done;
  }
  TRY(build(team->context, HELD_OUT, 0, team->size, offsets, &forward, error));
  TRY(start(team, &forward, &plan, &session, error));
  TRY(tsr_source_create(team->context, &source, error));
  TRY(take_parameters(trained, n, memory, source, error));
  TRY(tsr_session_load(session, source, error));
  TRY(tsr_session_bind(session, rank, forward.x, &x, error));
  TRY(tsr_session_start(session, error));
  TRY(tsr_session_wait(session, error));
  TRY(tsr_session_gather(session, forward.y, &y, error));
  *right = count_right(answers);
done:
  tsr_session_destroy(&session);
  tsr_source_destroy(&source);
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&forward.graph);
  free(memory);
  free(answers);
  return status;
}

/* Returns what main returns. */
static int train(int epochs) {
  tsr_status status = TSR_OK;
  tsr_error error = {.message = ""};
  team team = {0};
  network n = {0};
  tsr_plan *plan = NULL;
  tsr_session *session = NULL;
  tsr_source *source = NULL;
  int right = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &team.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &team.size);
  const int rank = team.rank, size = team.size;
  int64_t offsets[size + 1];
  for (int r = 0; r <= size; r++) offsets[r] = layers[1].out * r * (r + 1) / ((int64_t)size * (size + 1));

  TRY(tsr_context_create(NULL, &team.context, &error));
  TRY(tsr_group_create_mpi(team.context, MPI_COMM_WORLD, NULL, &team.group, &error));
  TRY(tsr_group_agree(team.group,
                      tsr_device_open(team.context, getenv("TESSERA_DEVICE"), NULL, &team.device, &error),
                      &error, &error));
  TRY(tsr_cluster_measure(team.group, &team.device, 1, TSR_MEASURE_OPTIONS(.estimate_only = true),
                          &team.cluster, &error));
  TRY(build(team.context, BATCH, 1, size, offsets, &n, &error));
  TRY(start(&team, &n, &plan, &session, &error));
  TRY(tsr_source_create(team.context, &source, &error));
  TRY(add_first_parameters(source, &error));
  TRY(tsr_session_load(session, source, &error));
  for (int epoch = 1; epoch <= epochs; epoch++) {
    double sum = 0;
    int steps = 0;
    for (int first = 0; first + BATCH <= IMAGES - HELD_OUT; first += BATCH, steps++) {
      float loss;
      TRY(train_on(session, &n, rank, first, &loss, &error));
      sum += loss;
    }
    if (rank == 0) printf("epoch %2d: loss %.8f\n", epoch, sum / steps);
  }
  TRY(examine(&team, session, &n, offsets, &right, &error));
  if (rank == 0)
    printf("%d of %d held-out images right, %.1f %%, on %d rank%s\n", right, HELD_OUT,
           100.0 * right / HELD_OUT, size, size == 1 ? "" : "s");
done:
  if (status != TSR_OK) fprintf(stderr, "rank %d: %s\n", rank, error.message);
  tsr_session_destroy(&session);
  tsr_source_destroy(&source);
  tsr_plan_destroy(&plan);
  tsr_graph_destroy(&n.graph);
  tsr_cluster_destroy(&team.cluster);
  tsr_device_close(&team.device);
  tsr_group_destroy(&team.group);
  tsr_context_destroy(&team.context);
  return status == TSR_OK && right > ENOUGH * HELD_OUT ? 0 : 1;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const int epochs = argc > 2 ? atoi(argv[2]) : 20;
  int status = 1;
  if (argc < 2 || epochs < 1)
    fprintf(stderr,
            "usage: mpi_digits FOLDER [EPOCHS], with images.idx3-ubyte and labels.idx1-ubyte in FOLDER\n");
  else if (read_images(argv[1]))
    status = train(epochs);
  MPI_Finalize();
  return status;
}
