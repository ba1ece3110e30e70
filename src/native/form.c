/* The canonical form of plain JSON: `nebis.core.jsonform.json_form`. */

#include "native.h"
#include <string.h>

enum { DEEPEST_TREE = 80 }; /* As in nebis.core.canonical; tests/native compares both sides of it. */

static int write_node(Buffer *buffer, PyObject *node, long depth);

void buffer_begin(Buffer *buffer)
{
    buffer->start = buffer->small;
    buffer->used = 0;
    buffer->room = SMALL;
}

void buffer_end(Buffer *buffer)
{
    if (buffer->start != buffer->small) {
        PyMem_Free(buffer->start);
    }
}

static int add(Buffer *buffer, const char *bytes, size_t size)
{
    if (size > buffer->room - buffer->used) {
        size_t room = 2 * buffer->room + size;
        char *larger = PyMem_Malloc(room);
        if (larger == NULL) {
            return 0;
        }
        memcpy(larger, buffer->start, buffer->used);
        buffer_end(buffer);
        buffer->start = larger;
        buffer->room = room;
    }
    memcpy(buffer->start + buffer->used, bytes, size);
    buffer->used += size;
    return 1;
}

/* Writes digits that end before `end`, and returns where they begin. */
static char *spelled(unsigned long long value, char *end)
{
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return end;
}

/* Adds what begins a text or a number: its kind, how many bytes follow, and a colon. */
static int add_head(Buffer *buffer, char kind, size_t size)
{
    char head[24], *end = head + sizeof head, *start;
    start = end - 1;
    *start = ':';
    start = spelled(size, start);
    *--start = kind;
    return add(buffer, start, (size_t)(end - start));
}

static int write_text(Buffer *buffer, PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        PyErr_Clear(); /* Half of a surrogate pair. */
        return 0;
    }
    return add_head(buffer, 's', (size_t)size) && add(buffer, bytes, (size_t)size);
}

/* Digits without the zeros at their end, and how many those were: numbers count by value, however they are spelled. */
static int write_integer(Buffer *buffer, PyObject *number)
{
    int overflow, zeros = 0;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow) {
        return 0;
    }
    if (value == 0) {
        return add(buffer, "n1:0", 4);
    }
    while (value % 10 == 0) {
        value /= 10;
        zeros++;
    }
    char body[32], *end = body + sizeof body, *start;
    start = spelled((unsigned long long)zeros, end);
    *--start = 'e';
    start = spelled(value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value, start);
    if (value < 0) {
        *--start = '-';
    }
    size_t size = (size_t)(end - start);
    return add_head(buffer, 'n', size) && add(buffer, start, size);
}

static int write_items(Buffer *buffer, PyObject *items, long below)
{
    if (below > DEEPEST_TREE || !add(buffer, "[", 1)) {
        return 0;
    }
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(items); place++) {
        if (!write_node(buffer, PyList_GET_ITEM(items, place), below)) {
            return 0;
        }
    }
    return add(buffer, "]", 1);
}

typedef struct {
    size_t start, size;
} Pair;

/* Pairs are in the order of their bytes. No form begins another one, so that two never differ in length alone. */
static int comes_after(const char *bytes, Pair one, Pair other)
{
    return memcmp(bytes + one.start, bytes + other.start, one.size < other.size ? one.size : other.size) > 0;
}

static void sort(const char *bytes, Pair *pairs, size_t count, Pair *spare)
{
    enum { FEW = 12 };
    if (count <= FEW) {
        for (size_t place = 1; place < count; place++) {
            Pair moved = pairs[place];
            size_t to = place;
            for (; to > 0 && comes_after(bytes, pairs[to - 1], moved); to--) {
                pairs[to] = pairs[to - 1];
            }
            pairs[to] = moved;
        }
        return;
    }
    size_t half = count / 2, left = 0, right = half;
    sort(bytes, pairs, half, spare);
    sort(bytes, pairs + half, count - half, spare);
    memcpy(spare, pairs, count * sizeof *pairs);
    for (size_t to = 0; to < count; to++) {
        int takes_right = left == half || (right < count && comes_after(bytes, spare[left], spare[right]));
        pairs[to] = takes_right ? spare[right++] : spare[left++];
    }
}

/* Puts the pairs that were written from `start` on in order. */
static int arrange(Buffer *buffer, size_t start, Pair *pairs, size_t count, Pair *spare)
{
    size_t size = buffer->used - start, to = 0;
    char few[512], *arranged = few;
    if (size > sizeof few && (arranged = PyMem_Malloc(size)) == NULL) {
        return 0;
    }
    sort(buffer->start, pairs, count, spare);
    for (size_t place = 0; place < count; place++) {
        memcpy(arranged + to, buffer->start + pairs[place].start, pairs[place].size);
        to += pairs[place].size;
    }
    memcpy(buffer->start + start, arranged, size);
    if (arranged != few) {
        PyMem_Free(arranged);
    }
    return 1;
}

static int write_pairs(Buffer *buffer, PyObject *members, long below, Pair *pairs, size_t count)
{
    PyObject *name, *node;
    Py_ssize_t position = 0;
    size_t start = buffer->used;
    for (size_t place = 0; place < count && PyDict_Next(members, &position, &name, &node); place++) {
        size_t begun = buffer->used;
        if (!PyUnicode_CheckExact(name) || !write_text(buffer, name) || !write_node(buffer, node, below)) {
            return 0;
        }
        pairs[place] = (Pair){begun, buffer->used - begun};
    }
    return arrange(buffer, start, pairs, count, pairs + count);
}

static int write_members(Buffer *buffer, PyObject *members, long below)
{
    enum { FEW = 16 };
    Pair few[2 * FEW], *pairs = few;
    size_t count = (size_t)PyDict_GET_SIZE(members);
    if (below > DEEPEST_TREE || !add(buffer, "{", 1)) {
        return 0;
    }
    if (count > FEW && (pairs = PyMem_Malloc(2 * count * sizeof *pairs)) == NULL) {
        return 0;
    }
    int is_written = write_pairs(buffer, members, below, pairs, count) && add(buffer, "}", 1);
    if (pairs != few) {
        PyMem_Free(pairs);
    }
    return is_written;
}

/* Fractions and integers of more than 64 bits are left to Python, as is everything that is not plain JSON. */
static int write_node(Buffer *buffer, PyObject *node, long depth)
{
    if (PyUnicode_CheckExact(node)) {
        return write_text(buffer, node);
    }
    if (PyLong_CheckExact(node)) {
        return write_integer(buffer, node);
    }
    if (PyDict_CheckExact(node)) {
        return write_members(buffer, node, depth + 1);
    }
    if (PyList_CheckExact(node)) {
        return write_items(buffer, node, depth + 1);
    }
    if (node == Py_None) {
        return add(buffer, "z", 1);
    }
    return PyBool_Check(node) && add(buffer, node == Py_True ? "t" : "f", 1);
}

int write_form(Buffer *buffer, PyObject *tree, long depth)
{
    return 0 <= depth && depth <= DEEPEST_TREE && write_node(buffer, tree, depth);
}

/* (definition, tree, depth = 0): asks the definition about whatever is unusual. */
PyObject *json_form(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    long depth = count == 3 ? PyLong_AsLong(args[2]) : 0;
    if (depth == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (count != 2 && count != 3) {
        return PyErr_Format(PyExc_TypeError, "json_form takes a tree and a depth");
    }
    Buffer buffer;
    buffer_begin(&buffer);
    PyObject *form = NULL;
    int is_usual = write_form(&buffer, args[1], depth);
    if (is_usual) {
        form = PyBytes_FromStringAndSize(buffer.start, (Py_ssize_t)buffer.used);
    }
    buffer_end(&buffer);
    return is_usual ? form : PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
}
