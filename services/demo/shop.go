package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Dish is one line of the menu.
type Dish struct {
	Name        string
	Description string
	Cents       int
	Allergens   []string
	Vegetarian  bool
}

// Price is the price as it is written on the menu.
func (d Dish) Price() string { return price(d.Cents) }

func price(cents int) string { return fmt.Sprintf("€%d.%02d", cents/100, cents%100) }

// An Item is a dish in an order.
type Item struct {
	Count int
	Dish  Dish
}

// Stage is how far an order has come.
type Stage string

// The stages in their order.
const (
	Cooking   Stage = "cooking"
	OnItsWay  Stage = "on_its_way"
	Delivered Stage = "delivered"
)

// Label is the stage in words.
func (s Stage) Label() string { return strings.ReplaceAll(string(s), "_", " ") }

// An Order is what a customer asked for and how far it has come.
type Order struct {
	Number string
	Items  []Item
	Stage  Stage
	Placed time.Time
	Due    time.Time // when it arrives, or arrived
	Rider  string
	// Account is whose order it is.
	Account string
}

// Total is the sum of the order in cents.
func (o Order) Total() int {
	sum := 0
	for _, it := range o.Items {
		sum += it.Count * it.Dish.Cents
	}
	return sum
}

// TotalPrice is the sum as it is written on the bill.
func (o Order) TotalPrice() string { return price(o.Total()) }

// Summary lists the dishes in a phrase.
func (o Order) Summary() string {
	parts := make([]string, len(o.Items))
	for i, it := range o.Items {
		parts[i] = fmt.Sprintf("%d × %s", it.Count, it.Dish.Name)
	}
	return strings.Join(parts, ", ")
}

// The customers that have orders and an address; their accounts are the identity provider's.
const (
	mia = "customer-1001"
	ken = "customer-1002"
)

// shop is the menu, the order book of the day, and where the customers live.
type shop struct {
	menu []Dish
	zone *time.Location

	mu        sync.Mutex
	addresses map[string]string // by account
}

func newShop() *shop {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		zone = time.UTC
	}
	return &shop{zone: zone, addresses: map[string]string{
		mia: "Kastanienallee 12, 10435 Berlin",
		ken: "Sonnenallee 64, 12045 Berlin",
	}, menu: []Dish{
		{Name: "Tonkotsu Ramen", Description: "Pork broth of twelve hours, chashu, soft egg, spring onion", Cents: 1390, Allergens: []string{"wheat", "egg", "soy", "sesame"}},
		{Name: "Shoyu Ramen", Description: "Clear chicken broth with soy, bamboo, nori", Cents: 1250, Allergens: []string{"wheat", "soy"}},
		{Name: "Miso Ramen", Description: "Miso broth, sweetcorn, tofu, pak choi", Cents: 1190, Allergens: []string{"wheat", "soy", "sesame"}, Vegetarian: true},
		{Name: "Rice Noodle Bowl", Description: "Rice noodles, peanuts, herbs, lime; no gluten", Cents: 1090, Allergens: []string{"peanut", "soy"}, Vegetarian: true},
		{Name: "Pork Gyoza", Description: "Six dumplings from the pan", Cents: 690, Allergens: []string{"wheat", "soy", "sesame"}},
		{Name: "Miso Soup", Description: "Dashi, tofu, wakame", Cents: 390, Allergens: []string{"soy", "fish"}},
		{Name: "Mochi", Description: "Two rice cakes with red bean", Cents: 450, Vegetarian: true},
	}}
}

// orders is the order book as it stands at now. The demo's orders keep their distance
// to the present, so that there is always one on its way.
func (s *shop) orders(now time.Time) []Order {
	now = now.Truncate(5 * time.Minute)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	return []Order{
		{Number: "1043", Account: ken, Stage: Cooking, Placed: at(-5), Due: at(35), Items: []Item{{1, s.menu[2]}, {1, s.menu[6]}}},
		{Number: "1042", Account: mia, Stage: OnItsWay, Placed: at(-25), Due: at(15), Rider: "Mika", Items: []Item{{2, s.menu[0]}, {1, s.menu[5]}}},
		{Number: "1041", Account: mia, Stage: Delivered, Placed: at(-95), Due: at(-55), Rider: "Jo", Items: []Item{{1, s.menu[1]}, {1, s.menu[4]}}},
	}
}

func (s *shop) order(number string, now time.Time) (Order, bool) {
	for _, o := range s.orders(now) {
		if o.Number == number {
			return o, true
		}
	}
	return Order{}, false
}

// ordersOf are an account's orders, the newest first.
func (s *shop) ordersOf(account string, now time.Time) []Order {
	var own []Order
	for _, o := range s.orders(now) {
		if account != "" && o.Account == account {
			own = append(own, o)
		}
	}
	return own
}

func (s *shop) address(account string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addresses[account]
}

func (s *shop) setAddress(account, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.addresses[account]; ok {
		s.addresses[account] = address
	}
}
