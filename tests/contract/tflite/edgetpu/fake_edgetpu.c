/* A stand-in for libedgetpu: the functions of edgetpu_c.h that list devices, and the delegate that TensorFlow Lite
 * loads by name. The delegate takes the operators called "edgetpu-custom-op", as the real one does, and answers with
 * what a file holds (FAKE_EDGETPU_ANSWERS): the raw bytes of the outputs, one inference after the other, over and over.
 *
 * FAKE_EDGETPU is how many devices there are; "busy" is one that cannot be opened. The layouts are those of
 * tensorflow/lite/core/c/common.h. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type; const char* path; } edgetpu_device;
typedef struct { int size; int data[]; } IntArray;
typedef struct {
  int type; char* raw; IntArray* dims; float scale; int32_t zero_point; int allocation; size_t bytes;
  void* rest[6]; void* sparsity; void* dims_signature;
} Tensor;
typedef struct { IntArray* inputs; IntArray* outputs; } Node;
typedef struct Context Context;
typedef struct {
  void* (*init)(Context*, const char*, size_t);
  void (*free)(Context*, void*);
  int (*prepare)(Context*, Node*);
  int (*invoke)(Context*, Node*);
  const char* (*profiling_string)(const Context*, const Node*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* newer[8];
} Registration;
typedef struct Delegate Delegate;
struct Delegate {
  void* data; int (*prepare)(Context*, Delegate*); void* copy_from; void* copy_to; void* release; int64_t flags;
  void* opaque;
};
struct Context {
  size_t tensors_size;
  int (*execution_plan)(Context*, IntArray**);
  Tensor* tensors;
  void* impl;
  void* resize;
  void* report;
  void* add;
  int (*node)(Context*, int, Node**, Registration**);
  int (*replace)(Context*, Registration, const IntArray*, Delegate*);
};

static long devices(void) {
  const char* said = getenv("FAKE_EDGETPU");
  return said == NULL ? 0 : strcmp(said, "busy") == 0 ? 1 : atol(said);
}

edgetpu_device* edgetpu_list_devices(size_t* count) {
  *count = (size_t)devices();
  edgetpu_device* listed = calloc(*count + 1, sizeof(edgetpu_device));
  for (size_t i = 0; i < *count; i++) listed[i].path = "/dev/apex_0";
  return listed;
}

void edgetpu_free_devices(edgetpu_device* listed) { free(listed); }

static int prepare(Context* context, Node* node) { return 0; }

static int invoke(Context* context, Node* node) {
  static long position = 0;
  FILE* answers = fopen(getenv("FAKE_EDGETPU_ANSWERS"), "rb");
  if (answers == NULL) return 1;
  for (int i = 0; i < node->outputs->size; i++) {
    Tensor* output = &context->tensors[node->outputs->data[i]];
    fseek(answers, position, SEEK_SET);
    if (fread(output->raw, 1, output->bytes, answers) != output->bytes) {
      position = 0;
      rewind(answers);
      if (fread(output->raw, 1, output->bytes, answers) != output->bytes) return 1;
    }
    position += (long)output->bytes;
  }
  fclose(answers);
  return 0;
}

static int take(Context* context, Delegate* delegate) {
  IntArray* plan;
  if (context->execution_plan(context, &plan)) return 1;
  IntArray* taken = calloc(1, sizeof(int) * ((size_t)plan->size + 1));
  for (int i = 0; i < plan->size; i++) {
    Node* node;
    Registration* registration;
    if (context->node(context, plan->data[i], &node, &registration)) return 1;
    if (registration->custom_name != NULL && strcmp(registration->custom_name, "edgetpu-custom-op") == 0)
      taken->data[taken->size++] = plan->data[i];
  }
  Registration kernel;
  memset(&kernel, 0, sizeof(kernel));
  kernel.prepare = prepare;
  kernel.invoke = invoke;
  kernel.custom_name = "EdgeTpuDelegateForCustomOp";
  kernel.version = 1;
  int status = taken->size == 0 ? 0 : context->replace(context, kernel, taken, delegate);
  free(taken);
  return status;
}

Delegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void (*report)(const char*)) {
  const char* said = getenv("FAKE_EDGETPU");
  if (devices() == 0 || (said != NULL && strcmp(said, "busy") == 0)) {
    report("Failed to open device");
    return NULL;
  }
  Delegate* delegate = calloc(1, sizeof(Delegate));
  delegate->prepare = take;
  delegate->flags = 1; /* allows tensors of unknown size */
  return delegate;
}

void tflite_plugin_destroy_delegate(Delegate* delegate) { free(delegate); }
