package agents

import "container/list"

// cache keeps values by client_id, within a number of entries and a sum of costs;
// the least recently used one goes first. The caller locks.
type cache[V any] struct {
	maxEntries int
	maxCost    int64
	cost       int64
	order      *list.List // of item[V], most recently used in front
	byID       map[string]*list.Element
}

type item[V any] struct {
	id    string
	value V
	cost  int64
}

func newCache[V any](maxEntries int, maxCost int64) *cache[V] {
	return &cache[V]{maxEntries: maxEntries, maxCost: maxCost, order: list.New(), byID: make(map[string]*list.Element)}
}

func (c *cache[V]) get(id string) (V, bool) {
	e, ok := c.byID[id]
	if !ok {
		var none V
		return none, false
	}
	c.order.MoveToFront(e)
	return e.Value.(item[V]).value, true //nolint:forcetypeassert // put is the only writer
}

// put stores value. One that costs more than the whole cache may hold is not stored.
func (c *cache[V]) put(id string, value V, cost int64) {
	c.remove(id)
	if cost > c.maxCost {
		return
	}
	c.byID[id] = c.order.PushFront(item[V]{id: id, value: value, cost: cost})
	c.cost += cost
	for len(c.byID) > c.maxEntries || c.cost > c.maxCost {
		c.remove(c.order.Back().Value.(item[V]).id) //nolint:forcetypeassert // as in get
	}
}

func (c *cache[V]) remove(id string) {
	e, ok := c.byID[id]
	if !ok {
		return
	}
	c.cost -= e.Value.(item[V]).cost //nolint:forcetypeassert // as in get
	c.order.Remove(e)
	delete(c.byID, id)
}
