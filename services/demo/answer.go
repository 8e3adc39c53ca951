package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A question is what the agent backend needs of one webhook.
type question struct {
	direct bool // the User talks themselves (Poppy 7.10)
	text   string
	data   map[string]any
	human  bool // a person wrote it: plain sentences, details in the text too (Poppy 7.8)
	locale string
	zone   string
	number string // the order number in text or data
	who    asker
}

// memory is what a conversation has been about so far.
type memory struct {
	order   string
	pending intent // waits for an order number, or for an address
}

type intent string

const (
	asksStatus     intent = "status"
	asksCancel     intent = "cancel"
	asksAddress    intent = "address"
	changesAddress intent = "change of address"
	asksAllergens  intent = "allergens"
	asksHours      intent = "hours"
	asksMenu       intent = "menu"
	wantsToOrder   intent = "order"
	wantsPerson    intent = "person"
	asksPhone      intent = "phone"
	saysThanks     intent = "thanks"
	greets         intent = "greeting"
	asksHelp       intent = "help"
	asksKitchen    intent = "kitchen"
	asksStory      intent = "story of the menu"
	wantsCall      intent = "call"
	saysGoodbye    intent = "goodbye"
	unclear        intent = "unclear"
)

// rule names an intent by words; the first rule with one of its words in the text wins.
type rule struct {
	intent intent
	words  []string
}

func rules() []rule {
	return []rule{
		{wantsCall, []string{"call me", "speak to me", "ruf mich an", "rufen sie mich an"}},
		{wantsPerson, []string{
			"a person", "a human", "real person", "someone from your team", "einem menschen", "mit jemandem", "mitarbeiter",
		}},
		{asksKitchen, []string{"check the kitchen", "check with the kitchen", "ask the kitchen", "frag die küche", "fragt die küche"}},
		{asksStory, []string{"about the menu", "about your menu", "about your dishes", "über die karte", "über eure karte"}},
		{saysGoodbye, []string{"goodbye", "good bye", "bye", "auf wiedersehen", "tschüss"}},
		{asksCancel, []string{"cancel", "refund", "send it back", "storn", "rückerstatt"}},
		{changesAddress, []string{
			"change my address", "change my delivery address", "change the address", "change the delivery address", "address to", "new address",
			"i moved", "i've moved", "umgezogen", "neue adresse", "neue lieferadresse", "adresse auf", "adresse ändern", "lieferadresse ändern",
		}},
		{asksAddress, []string{"address", "adresse", "anschrift"}},
		{asksAllergens, []string{"allerg", "gluten", "peanut", "nuts", "vegan", "vegetarian", "vegetarisch", "erdn"}},
		{asksHours, []string{"opening", "open", "close", "hours", "öffnungszeit", "geöffnet", "offen"}},
		{asksStatus, []string{
			"where", "status", "track", "how long", "arriv", "late", "delivery", "my order",
			"wo ist", "wo bleibt", "wann kommt", "lieferung", "meine bestellung",
		}},
		{wantsToOrder, []string{"to order", "i'd like", "i would like", "i want", "bestellen"}},
		{asksStatus, []string{"order", "bestellung"}},
		{asksMenu, []string{"menu", "dish", "eat", "ramen", "noodle", "price", "cost", "speisekarte", "karte", "gericht"}},
		{asksPhone, []string{"phone", "call", "telefon"}},
		{wantsPerson, []string{"person", "human", "someone", "mensch"}},
		{asksHelp, []string{"help", "what can you do", "hilfe", "was kannst du"}},
		{saysThanks, []string{"thank", "danke"}},
		{greets, []string{"hello", "hi", "hey", "good morning", "good evening", "hallo", "guten"}},
	}
}

func (q question) intent() intent {
	text := strings.ToLower(q.text)
	words := strings.FieldsFunc(text, func(c rune) bool { return c <= 127 && c != '\'' && (c < 'a' || c > 'z') })
	for _, r := range rules() {
		for _, w := range r.words {
			// Short words count alone only: "hi" is in "this".
			if len(w) > 3 && strings.Contains(text, w) || slices.Contains(words, w) {
				return r.intent
			}
		}
	}
	return unclear
}

// orderNumber finds a number such as 1042 or #1042 in the text, or in data.
func orderNumber(text string, data map[string]any) string {
	for _, key := range []string{"order_number", "order", "order_id"} {
		switch v := data[key].(type) {
		case string:
			return strings.TrimPrefix(strings.TrimSpace(v), "#")
		case json.Number:
			return v.String()
		case float64:
			return fmt.Sprintf("%.0f", v)
		}
	}
	if m := regexp.MustCompile(`(?:^|[^0-9])([0-9]{4,6})(?:[^0-9]|$)`).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// reply answers q and returns what the conversation is about from now on. It is plain
// rules over the order book: the same question at the same moment has the same answer.
func (s *shop) reply(q question, mem memory, now time.Time) (answer, memory) {
	say := phrasesFor(q.locale)
	what := q.intent()
	if _, ok := q.data["delivery_address"]; what == unclear && (ok || mem.pending == changesAddress) {
		what = changesAddress
	}
	if what == asksAddress || what == changesAddress {
		return s.replyAddress(q, what, mem, say)
	}
	if what == unclear && q.number != "" {
		if what = mem.pending; what == "" {
			what = asksStatus
		}
	}
	if q.number != "" {
		mem.order = q.number
	}
	mem.pending = ""
	one := func(text string, data map[string]any) (answer, memory) { return says(text, data), mem }

	switch what {
	case asksStatus:
		if mem.order == "" {
			own, refusal := s.latest(q.who, say, now)
			if refusal != nil {
				return *refusal, mem
			}
			mem.order = own
		}
		o, ok := s.order(mem.order, now)
		if !ok {
			return one(fmt.Sprintf(say.unknownOrder, mem.order), nil)
		}
		return one(s.describe(o, q, say), s.details(o, q.who))
	case asksCancel:
		if mem.order == "" {
			mem.pending = asksCancel
			return one(say.whichOrder, nil)
		}
		o, ok := s.order(mem.order, now)
		switch {
		case !ok:
			return one(fmt.Sprintf(say.unknownOrder, mem.order), nil)
		case o.Stage == Cooking && q.who.owns(o) && q.who.may(scopeWrite):
			return one(fmt.Sprintf(say.cancelKitchen, o.Number), s.details(o, q.who))
		case o.Stage == Cooking:
			return one(fmt.Sprintf(say.cancelCall, o.Number), s.details(o, q.who))
		default:
			return one(fmt.Sprintf(say.cancelTooLate, o.Number, say.stage[o.Stage]), s.details(o, q.who))
		}
	case asksAllergens:
		return one(s.allergens(q, say), map[string]any{"dishes": s.menuData()})
	case asksHours:
		return one(say.hours, map[string]any{"opens": "11:30", "closes": "22:30", "days": "daily", "time_zone": s.zone.String()})
	case asksMenu:
		return one(s.menuText(say), map[string]any{"dishes": s.menuData()})
	case wantsToOrder:
		return one(say.orderOnSite, map[string]any{"dishes": s.menuData()})
	case asksPhone:
		return one(say.phone, nil)
	case saysThanks:
		return one(say.welcome, nil)
	case greets:
		return one(say.greeting, nil)
	case asksHelp:
		return one(say.help, nil)
	case wantsPerson, wantsCall, asksKitchen, asksStory, saysGoodbye:
		return s.act(what, q, say), mem
	default:
		return one(say.unclear, nil)
	}
}

func (s *shop) clock(at time.Time, q question) string {
	zone := s.zone
	if q.zone != "" {
		if z, err := time.LoadLocation(q.zone); err == nil {
			zone = z
		}
	}
	return at.In(zone).Format("15:04")
}

// describe says how far an order is. What is in it and who brings it is for its owner.
func (s *shop) describe(o Order, q question, say phrases) string {
	at := s.clock(o.Due, q)
	if !q.human {
		return fmt.Sprintf(say.statusShort, o.Number, say.stage[o.Stage], at)
	}
	own := q.who.owns(o)
	text := fmt.Sprintf(say.status, o.Number, say.stage[o.Stage])
	if own {
		text = fmt.Sprintf(say.statusLong, o.Number, o.Summary(), say.stage[o.Stage])
	}
	switch {
	case o.Stage == Delivered:
		return text + " " + fmt.Sprintf(say.arrived, at)
	case own && o.Rider != "":
		return text + " " + fmt.Sprintf(say.withRider, o.Rider, at)
	default:
		return text + " " + fmt.Sprintf(say.due, at)
	}
}

func (s *shop) details(o Order, who asker) map[string]any {
	order := map[string]any{
		"number":    o.Number,
		"status":    string(o.Stage),
		"placed_at": o.Placed.UTC().Format(time.RFC3339),
		"due_at":    o.Due.UTC().Format(time.RFC3339),
	}
	if who.owns(o) {
		items := make([]map[string]any, len(o.Items))
		for i, it := range o.Items {
			items[i] = map[string]any{"name": it.Dish.Name, "count": it.Count, "price_cents": it.Dish.Cents}
		}
		order["items"], order["total_cents"], order["currency"] = items, o.Total(), "EUR"
	}
	return map[string]any{"order": order}
}

func (s *shop) menuData() []map[string]any {
	out := make([]map[string]any, len(s.menu))
	for i, d := range s.menu {
		out[i] = map[string]any{
			"name": d.Name, "price_cents": d.Cents, "currency": "EUR",
			"allergens": append([]string{}, d.Allergens...), "vegetarian": d.Vegetarian,
		}
	}
	return out
}

func (s *shop) menuText(say phrases) string {
	lines := make([]string, len(s.menu))
	for i, d := range s.menu {
		lines[i] = d.Name + " " + d.Price()
	}
	return say.menu + " " + strings.Join(lines, ", ") + "."
}

// allergens answers for the dish that was named, or for the whole menu.
func (s *shop) allergens(q question, say phrases) string {
	text := strings.ToLower(q.text)
	for _, d := range s.menu {
		if strings.Contains(text, strings.ToLower(d.Name)) {
			if len(d.Allergens) == 0 {
				return fmt.Sprintf(say.noAllergens, d.Name)
			}
			return fmt.Sprintf(say.allergens, d.Name, strings.Join(d.Allergens, ", "))
		}
	}
	var vegetarian, glutenFree []string
	for _, d := range s.menu {
		if d.Vegetarian {
			vegetarian = append(vegetarian, d.Name)
		}
		if !slices.Contains(d.Allergens, "wheat") {
			glutenFree = append(glutenFree, d.Name)
		}
	}
	return fmt.Sprintf(say.diets, strings.Join(vegetarian, ", "), strings.Join(glutenFree, ", "))
}
